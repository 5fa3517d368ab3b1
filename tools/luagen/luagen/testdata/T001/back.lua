--- Back writes back what it has read and changed.
---@contract dup-only
---@retry safe
---@allow W004 this case is about another rule
---@key n    string
---@key most string
---@key h    hash
---@key due  zset
---@arg id   string
---@arg by   int  min=1

local n, most, h, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, by = ARGV[1], tonumber(ARGV[2])
redis.call('SET', n, (redis.call('GET', n) or 0) + 1)
local have = tonumber(redis.call('HGET', h, 'n') or 0)
have = have - by
redis.call('HSET', h, 'at', 5, 'n', have)
redis.call('ZADD', due, tonumber(redis.call('ZSCORE', due, id) or 0) + by, id)

-- A repeat writes the same: another field or key is read, nothing is changed of it, or a test meets the first run.
local limit = tonumber(redis.call('GET', most) or 0)
redis.call('HSET', h, 'end', (redis.call('HGET', h, 'start') or 0) + by)
redis.call('SET', most, math.max(limit, by))
limit = limit + by
if redis.call('HGET', h, 'id') ~= id then
  redis.call('SETEX', n, 60, (redis.call('GET', n) or 0) + 1)
end
redis.call('HSET', h, 'id', id)
