--- UnsetAlone returns a local without a value, which is no array, and one that a way out makes sure of.
---@readonly
---@key   h  hash
---@arg   mode  string
---@reply (a string)?

local h, mode = KEYS[1], ARGV[1]
local whole, a
if redis.call('HEXISTS', h, mode) == 1 then
  a = 'x'
end
if redis.call('HEXISTS', h, mode) == 0 then
  return whole
end
return {a}
