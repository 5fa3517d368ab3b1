--- Units takes each length of time for another.
---@contract all-or-nothing
---@allow N003 this case is about another rule
---@key  a     string
---@arg  ttl   ms
---@arg  wait  s
---@arg  at    time.ms

local a = KEYS[1]
local ttl, wait, at = ARGV[1], tonumber(ARGV[2]), ARGV[3]
redis.call('SET', a, 'EX', 'EX', ttl)
redis.call('SET', a, 'x', 'PX', ttl)
redis.call('PEXPIRE', a, wait)
redis.call('PEXPIRE', a, wait * 1000)
redis.call('EXPIREAT', a, at)
redis.call('PEXPIREAT', a, at)
redis.call('EXPIRE', a, wait)
