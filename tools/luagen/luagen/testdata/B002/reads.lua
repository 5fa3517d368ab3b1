--- Reads does what the test wants.
---@contract all-or-nothing
---@key lock

local lock = KEYS[1]
redis.call('SMEMBERS', lock)
redis.call('LRANGE', lock, 0, -1)
redis.call('ZRANGEBYSCORE', lock, '-inf', 1)
redis.call('XRANGE', lock, '-', '+')
redis.call('ZRANGE', lock, 0, '-1')
redis.call('ZRANGE', lock, 0, 1, 'BYSCORE')
redis.call('ZRANGE', lock, 0, 1, 'BYSCORE', 'LIMIT', 0, 10)
redis.call('LRANGE', lock, 0, 99)
local id = redis.call('TIME')[1]
redis.call('XRANGE', lock, id, id)
redis.call('XREVRANGE', lock, id, id)
redis.call('XREAD', 'STREAMS', lock, id)
