--- Counts takes counts for a bool, and replies that are one.
---@contract dup-only
---@key   k  set
---@key   n  string
---@args  id  string  max=10
---@reply (a bool, b bool, c bool, d bool, e bool, f bool, g bool)

local k, n = KEYS[1], KEYS[2]
return {
  redis.call('INCR', n),
  redis.call('SADD', k, 'x', 'y'),
  redis.call('SADD', k, unpack(ARGV)),
  redis.call('SADD', k, 'x'),
  redis.call('PEXPIRE', k, 5, 'NX'),
  redis.call('SCARD', k) > 0,
  redis.call('SISMEMBER', k, 'x'),
}
