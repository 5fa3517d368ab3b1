--- Take takes a lock.
---@contract dup-only
---@key   lock  hash
---@args  id  string  max=10
---@reply int

local lock = KEYS[1]
--< part/now_ms.lua
-- The server's clock in ms, as text.

local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
for i = 1, #ARGV do
  local id = ARGV[i]
	  --< part/forget.lua
	  if redis.call('HGET', lock, 'o') == id then
	    redis.call('HDEL', lock, 'o', id)
	  end
	  -->
end
return tonumber(now_ms)
