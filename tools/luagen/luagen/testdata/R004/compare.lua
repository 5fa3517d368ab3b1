--- Compare does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
local v = redis.call('GET', lock)
if v == nil then
  return 1
end
if redis.call('GET', lock) ~= nil then
  return 2
end
