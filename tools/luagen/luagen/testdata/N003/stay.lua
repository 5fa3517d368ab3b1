--- Stay keeps things for a while.
---@contract dup-only
---@retry never
---@key a string
---@key h hash
---@key z zset
---@key l list
---@arg ttl ms
---@arg short ms max=60000
---@arg stay s
---@arg n int
---@arg ahead int

local a, h, z, l = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, short, stay, n, ahead = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if ahead < 0 or ahead > 1000 then return end

-- Reported.
redis.call('SET', a, '', 'PX', math.max(ttl, 60000))
redis.call('SET', a, '', 'EX', stay)
local life = ttl + 1
redis.call('PEXPIRE', a, life)
redis.call('HINCRBY', h, 'bytes', n)
redis.call('ZRANGE', z, '-inf', '+inf', 'BYSCORE', 'LIMIT', n, 10)
redis.call('LRANGE', l, n - 1, n)
redis.call('EXPIRE', a, 300000000)
redis.call('EXPIREAT', a, redis.call('TIME')[1] + 60)
redis.call('PEXPIRE', a, redis.call('PTTL', l))
local function keep(key, ms) redis.call('PEXPIRE', key, ms) end
keep(a, ttl * 2)
local function twice(ms) return ms * 2 end
redis.call('PEXPIRE', a, twice(ttl))
redis.call('LTRIM', l, 0, redis.call('TIME')[1] - 1)

-- As text, or with a bound.
redis.call('SET', a, '', 'PX', ttl)
redis.call('SET', a, '', 'PX', string.format('%.0f', ttl + 1))
redis.call('SET', a, '', 'PX', short + 1000)
redis.call('SET', a, '', 'EX', math.min(stay, 3600))
redis.call('EXPIRE', a, 157680000)
redis.call('EXPIRE', a, 60 * 60 * 24 * 365 * 5)
redis.call('PEXPIRE', a, n % 60000)
redis.call('LRANGE', l, ahead, ahead + 99)
redis.call('LTRIM', l, 0, #ARGV * 10 - 1)
redis.call('LRANGE', l, redis.call('LLEN', l) - 10, -1)
redis.call('INCRBY', a, redis.call('HLEN', h) + 1)
redis.call('ZRANGE', z, stay * 1000, '+inf', 'BYSCORE', 'LIMIT', 0, 10)
redis.call('ZADD', z, stay * 1000, 'a')
local seen = 0
for i = 1, 10 do seen = seen + i end
redis.call('HINCRBY', h, 'seen', seen)
local few = n
few = math.min(few, 500)
redis.call('INCRBY', a, few)
local state = {count = redis.call('LLEN', l), full = n}
redis.call('LTRIM', l, 0, state.count - 1)
local function stay_as_text(ms)
  ms = string.format('%.0f', ms)
  redis.call('PEXPIRE', a, ms)
end
stay_as_text(ttl + 1)
if n - ahead > 60000 then return end
redis.call('PEXPIRE', a, math.ceil((n - ahead) / 10))
