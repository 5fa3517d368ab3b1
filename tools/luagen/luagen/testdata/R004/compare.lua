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
if v ~= nil and v ~= false then
  return 3
end
if not v or v == nil then
  return 4
end
if v == nil and type(v) == 'boolean' then
  return 5
end
return 6
