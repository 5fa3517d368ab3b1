--- Servers does what the test wants.
---@contract all-or-nothing

redis.call('KEYS', '*')
redis.call('FLUSHALL')
redis.call('SELECT', 3)
