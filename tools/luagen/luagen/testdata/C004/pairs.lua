--- Pairs leaves the value of a field out.
---@contract dup-only
---@slots any the test has keys of each type
---@key  h    hash
---@key  s    string
---@key  x    stream
---@key  z    zset
---@args pair string  max=10

local h, s, x, z = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
redis.call('XLEN', x)
redis.call('HSET', h, 'a', 1, 'b')
redis.call('HMSET', h, 'a', 1, 'b', 2, 'c')
redis.call('MSET', s, 1, 'x')
redis.call('XADD', x, '*', 'a', 1, 'b')
redis.call('XADD', x, 'NOMKSTREAM', 'MAXLEN', '~', 100, 'LIMIT', 10, '*', 'a', 1, 'b')
redis.call('ZUNIONSTORE', z, 2, z);
(redis.call)('STRLEN')
-- These are whole, or the server alone can tell.
redis.call('HSET', h, 'a', 1, unpack(ARGV))
redis.call('HSET', h, 'a', unpack(ARGV))
redis.call('MSET', s, 1)
redis.call('XADD', x, 'NOMKSTREAM', 'MAXLEN', '~', 100, 'LIMIT', 10, '*', 'a', 1)
redis.call('XADD', x, 'MINID', '5-0', '*', 'a', 1)
redis.call('XADD', x, ARGV[1], 'a', 1, 'b')
redis.call('ZUNIONSTORE', z, 1, z)
