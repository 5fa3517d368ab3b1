--- Refused has arguments that no server takes.
---@contract all-or-nothing
---@allow W004 this case is about another rule
---@key  n    string
---@key  z    zset
---@arg  ttl  ms

local n, z = KEYS[1], KEYS[2]
local ttl = ARGV[1]
local list = {'a', 'b'}
redis.call('SET', n, true)
redis.call('SET', n, 'v', 'NX', 'PX')
redis.call('SET', n, 'v', 'PX', 'NX')
redis.call('SET', n, 'v', 'EX', 0)
redis.call('ZADD', z, 'member', ttl)
redis.call('ZADD', z, 'NX', 1, 'a', 2)
redis.call("RPUSH", n, list)
redis.call('SET', n, ttl == '1')
