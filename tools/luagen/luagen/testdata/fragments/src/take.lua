--- Take takes a lock.
---@contract dup-only
---@key   lock  hash
---@args  id  string  max=10
---@reply int

local lock = KEYS[1]
--< part/now_ms.lua
for i = 1, #ARGV do
  local id = ARGV[i]
	  --< part/forget.lua
end
return tonumber(now_ms)
