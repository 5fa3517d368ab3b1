--- Whole returns nil for the whole reply, which is an absent one.
---@contract all-or-nothing
---@key lock
---@reply (a int, b string)?

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 1 then
  return {1, 'x'}
end
return nil
