--- Both refuses where it did not add exactly one of two.
---@contract all-or-nothing
---@key   k    set
---@arg   a    string
---@arg   b    string
---@error SOME  not exactly one

local k, a, b = KEYS[1], ARGV[1], ARGV[2]
if redis.call('SADD', k, a, b) ~= 1 then
  return redis.error_reply('SOME were there')
end
