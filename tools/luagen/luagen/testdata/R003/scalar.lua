--- Scalar does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply float

local lock = KEYS[1]
if redis.call('DEL', lock) == 1 then
  return {1}
end
return 'x'
