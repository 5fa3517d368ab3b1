--- Stored reads what it has stored: a rank and a score, a number, fields.
---@contract dup-only
---@retry  never
---@key    board   zset
---@key    n       string
---@key    h       hash
---@arg    member  string
---@arg    by      int
---@reply  (rank int, score float, n int, a int, b int, last int)

local board, n, h = KEYS[1], KEYS[2], KEYS[3]
local member, by = ARGV[1], ARGV[2]
redis.call('ZADD', board, 'GT', 'CH', by, 'first', by, member)
local score = tonumber(redis.call('ZINCRBY', board, by, member))
redis.call('EXPIRE', board, 60)
redis.call('INCR', n)
redis.call('HSET', h, 'a', by, 'b', by)
redis.call('HINCRBY', h, 'last', 1)
local rank = redis.call('ZREVRANK', board, member) + 1
for i = 1, 2 do
  redis.call('SET', n, redis.call('GET', n) + redis.call('HGET', h, 'b') + i)
end
return {rank, redis.call('ZSCORE', board, member), redis.call('GET', n), redis.call('HGET', h, 'a'), by,
  tonumber(redis.call('HGET', h, 'last'))}
