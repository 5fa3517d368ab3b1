--- Unused does what the test wants.
---@contract all-or-nothing
---@key lock
---@key fence
---@arg owner string
---@args job (id string, body bytes) max=5

local lock = KEYS[1]
local owner = ARGV[1]
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  redis.call('SET', lock, id)
end
