--- Right gives each new key its TTL, or leaves it to the program to say which keys get one.
---@contract dup-only
---@slots any this case has keys of the caller
---@key  a      string
---@key  b      string
---@key  c      string
---@key  d      string
---@key  e      set
---@key  f      hash
---@key  g      string
---@key  h      string
---@key  i      string
---@key  other  string
---@arg  ttl    s  max=1000
---@arg  limit  int  max=1000
---@arg  id     string

local a, b, c, d, e, f, g = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local h, i, other = KEYS[8], KEYS[9], KEYS[10]
local ttl, limit, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
-- The first one gives it.
if redis.call('INCR', a) == 1 then redis.call('EXPIRE', a, ttl) end
local n = redis.call('INCR', b)
if n <= 1 then redis.call('EXPIRE', b, ttl) end
-- The key had none before.
local before = redis.call('GET', c)
redis.call('INCR', c)
if not before then redis.call('EXPIRE', c, ttl) end
redis.call('INCR', d)
if redis.call('TTL', d) < 0 then redis.call('EXPIRE', d, ttl) end
-- The caller wants none.
redis.call('SADD', e, id)
if ttl > 0 then redis.call('EXPIRE', e, ttl) end
redis.call('HSET', f, id, '1')
if id ~= 'lasting' then redis.call('EXPIRE', f, ttl) end
-- Both ways give it one.
redis.call('INCR', g)
if redis.call('GET', other) then redis.call('EXPIRE', g, ttl) else redis.call('EXPIRE', g, 60) end
-- SET keeps it, or what is written is removed.
local found = redis.call('GET', other)
redis.call('SET', h, id, 'EX', ttl)
redis.call('SET', h, id, 'KEEPTTL')
redis.call('INCR', i)
if found then
  redis.call('DEL', i)
else
  redis.call('EXPIRE', i, ttl)
end
-- One thing is asked for twice.
if found then redis.call('INCR', i) end
if found then redis.call('EXPIRE', i, ttl) end
if redis.call('INCR', g) > limit then return end
redis.call('EXPIRE', g, ttl)
