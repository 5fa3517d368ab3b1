--- Onto writes onto what it reads.
---@contract dup-only
---@allow N003 this case is about another rule
---@retry safe
---@key total zset
---@key today zset
---@key bits  string
---@key lease string
---@arg more  ms

local total, today, bits, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local more = tonumber(ARGV[1])
redis.call('ZUNIONSTORE', total, 2, total, today)
redis.call('ZINTERSTORE', total, 2, today, total, 'WEIGHTS', 1, 2, 'AGGREGATE', 'MAX')
redis.call('ZRANGESTORE', total, total, 1, -1)
redis.call('SETBIT', bits, 7, 1 - redis.call('GETBIT', bits, 7))
redis.call('PEXPIRE', lease, redis.call('PTTL', lease) + more)
redis.call('MSET', lease, tonumber(redis.call('GET', lease) or 0) + 1)

-- A repeat writes the same.
redis.call('ZUNIONSTORE', total, 2, total, today, 'AGGREGATE', 'MAX')
redis.call('ZUNIONSTORE', total, 2, today, today)
redis.call('ZRANGESTORE', total, today, 1, -1)
redis.call('ZRANGESTORE', total, total, 1, 5, 'BYSCORE')
redis.call('ZRANGESTORE', total, total, 0, 99)
redis.call('SETBIT', bits, 7, 1 - redis.call('GETBIT', bits, 8))
redis.call('PEXPIRE', lease, redis.call('PTTL', today) + more)
