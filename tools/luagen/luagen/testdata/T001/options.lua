--- Options adds to a score and to a bit field, and sets both.
---@contract all-or-nothing
---@retry safe  the author believes so
---@key board zset
---@key bits  string
---@arg id    string

local board, bits = KEYS[1], KEYS[2]
local id = ARGV[1]
redis.call('GETBIT', bits, 1)
redis.call('ZADD', board, 'INCR', 1, id)
redis.call('BITFIELD', bits, 'INCRBY', 'u8', 0, 1)
redis.call('ZADD', board, 1, id)
redis.call('BITFIELD', bits, 'SET', 'u8', 0, 1)
redis.call('ZADD', board, 1, 'incr')
