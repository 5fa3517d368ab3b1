--- Unstored reads what it may not have stored, or has removed since.
---@contract dup-only
---@retry  never
---@key    board   zset
---@key    n       string
---@key    h       hash
---@arg    member  string
---@arg    by      int
---@reply  int

local board, n, h = KEYS[1], KEYS[2], KEYS[3]
local member, by = ARGV[1], tonumber(ARGV[2])
local sum = 0
local function add(text)
  sum = sum + text
end
redis.call('ZADD', board, 'XX', by, member)
sum = sum + redis.call('ZRANK', board, member)
redis.call('ZADD', board, by, 'other')
sum = sum + redis.call('ZSCORE', board, member)
if by > 1 then
  redis.call('SET', n, by)
end
sum = sum + redis.call('GET', n)
redis.pcall('SET', n, by)
sum = sum + redis.call('GET', n)
redis.call('HSET', h, 'a', 'b')
sum = sum + redis.call('HGET', h, 'b')
redis.call('HDEL', h, 'c')
sum = sum + redis.call('HGET', h, 'a')
redis.call('INCR', n)
for _ = 1, 2 do
  sum = sum + redis.call('GET', n)
  redis.call('DEL', n)
end
redis.call('INCR', n)
add(by)
sum = sum + redis.call('GET', n)
local name = 'x'
redis.call('HINCRBY', h, name, 1)
name = name .. 'y'
sum = sum + redis.call('HGET', h, name)
redis.call('SET', n, unpack(ARGV, 2, 5))
sum = sum + redis.call('GET', n)
redis.call('INCR', n)
redis.call('ZUNIONSTORE', board, 1, board)
sum = sum + redis.call('GET', n)
redis.call('INCR', n)
redis.call('RENAME', board, board)
sum = sum + redis.call('GET', n)
redis.call('INCR', n)
redis.call(ARGV[1], n)
sum = sum + redis.call('GET', n)
return sum
