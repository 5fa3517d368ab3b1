--- Ways takes lengths of time to a command by several ways.
---@contract dup-only
---@allow N003 this case is about another rule
---@slots any the test has several keys
---@key  a     string
---@key  h     hash
---@arg  ttl   ms
---@arg  wait  s
---@arg  at    time.s
---@reply (left ms, end time.s, gone ms, other int)

local a, h = KEYS[1], KEYS[2]
local ttl, wait, at = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local late
late = ttl
local function keep(key, time)
  redis.call('EXPIRE', key, time)
  redis.call('PEXPIRE', key, time)
end
redis.call('HLEN', h)
keep(a, ttl)
local copy = ttl
redis.call('EXPIRE', a, copy)
redis.call('EXPIRE', a, (ttl))
redis.call('EXPIRE', a, math.max(ttl, 1))
redis.call('SET', a, 'x', 'EX', math.floor(ttl))
redis.call('PEXPIRE', a, tonumber(wait))
redis.call('PEXPIREAT', a, string.format('%.0f', at))
redis.call('EXPIRE', a, late)
redis.call('HPEXPIRE', h, wait or 5, 'FIELDS', 1, 'f')
-- The unit is that of the place, or has been made so.
local function seconds(key, time)
  time = math.ceil(time / 1000)
  redis.call('EXPIRE', key, time)
end
seconds(a, ttl)
local secs = math.ceil(ttl / 1000)
redis.call('EXPIRE', a, secs)
redis.call('PEXPIRE', a, math.max(ttl, 1))
late = late / 1000
local more = ttl
more = more / 1000
redis.call('EXPIRE', a, more)
redis.call('EXPIREAT', a, at + wait)
return {redis.call('TTL', a), redis.call('PEXPIRETIME', a), redis.call('PTTL', a), redis.call('TTL', a)}
