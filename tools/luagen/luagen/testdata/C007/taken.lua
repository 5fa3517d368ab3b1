--- Taken has arguments that every server takes.
---@contract all-or-nothing
---@allow W001 what this is about is the arguments
---@key  n    string
---@key  z    zset
---@arg  ttl  ms
---@arg  how  string

local n, z = KEYS[1], KEYS[2]
local ttl, how = ARGV[1], ARGV[2]
redis.call('SET', n, 'PX', 'PX', ttl, 'NX')
redis.call('ZADD', z, 'NX', 'CH', '+inf', 'a', 2, 'b')
redis.call('ZADD', z, how, 1, 'a')
