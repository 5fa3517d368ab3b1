--- Takes takes another one in a repeat.
---@contract dup-only
---@retry safe  the author believes so
---@key jobs  list
---@key board zset
---@key bits  string
---@key log   stream
---@arg id    string

local jobs, board, bits, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id = ARGV[1]
redis.call('LREM', jobs, 1, id)
redis.call('LREM', jobs, 0, id)
redis.call('LTRIM', jobs, 1, -1)
redis.call('LTRIM', jobs, 0, -2)
redis.call('LTRIM', jobs, 0, 99)
redis.call('LTRIM', jobs, -100, -1)
redis.call('ZREMRANGEBYRANK', board, 0, 0)
redis.call('ZREMRANGEBYRANK', board, 0, -101)
redis.call('ZREMRANGEBYRANK', board, 100, -1)
redis.call('ZREMRANGEBYRANK', board, '-1', '-1')
redis.call('BITOP', 'XOR', bits, bits, bits)
redis.call('BITOP', 'OR', bits, bits, bits)
redis.call('BZPOPMIN', board, 0)
redis.call('XREADGROUP', 'GROUP', 'g', id, 'COUNT', 1, 'STREAMS', log, '>')
redis.call('XAUTOCLAIM', log, 'g', id, 1000, '0', 'COUNT', 10)
redis.call('XREADGROUP', 'GROUP', 'g', id, 'STREAMS', log, '0')
redis.call('XACK', log, 'g', '1-1')
