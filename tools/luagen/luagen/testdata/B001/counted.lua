--- Counted unpacks lists that are as long as a number with an upper end.
---@contract dup-only
---@key   due   zset
---@key   ready list
---@arg   count int
---@arg   size  int  min=1 max=1000

local due, ready = KEYS[1], KEYS[2]
local count, size = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('LLEN', ready)

local few = 500
redis.call('RPUSH', ready, unpack(redis.call('ZRANGEBYSCORE', due, 0, 9, 'LIMIT', 0, few)))
local named = redis.call('ZRANGEBYSCORE', due, 0, 9, 'LIMIT', 0, few)
redis.call('RPUSH', ready, unpack(named))
local n = math.min(count, few)
local head = redis.call('LPOP', ready, n)
redis.call('RPUSH', ready, unpack(head))
local due_now = redis.call('ZPOPMIN', due, math.min(count, 100))
local ids = {}
for i = 1, #due_now, 2 do
  ids[#ids + 1] = due_now[i]
end
redis.call('RPUSH', ready, unpack(ids))
local again = {}
for _, id in ipairs(ids) do
  table.insert(again, id)
end
redis.call('RPUSH', ready, unpack(again))
local fields = {'a', 'b'}
local values = redis.call('ZMSCORE', due, unpack(fields))
redis.call('RPUSH', ready, unpack(values))
if size > 100 then
  size = 100
end
local sized = redis.call('RPOP', ready, size)
redis.call('RPUSH', ready, unpack(sized))

local many = 9000
local long = redis.call('LRANGE', ready, 0, many)
redis.call('RPUSH', ready, unpack(long))
local ends_below_0 = redis.call('LRANGE', ready, 0, n - 1)
redis.call('RPUSH', ready, unpack(ends_below_0))
local all_below_0 = redis.call('ZRANGEBYSCORE', due, 0, 9, 'LIMIT', 0, n)
redis.call('RPUSH', ready, unpack(all_below_0))
local asked = redis.call('LRANGE', ready, 0, math.min(count, 9000))
redis.call('RPUSH', ready, unpack(asked))
local sums = {}
for _, id in ipairs(asked) do
  sums[#sums + 1] = id
end
redis.call('RPUSH', ready, unpack(sums))
local left, right = {}, {}
for _, id in ipairs(left) do
  right[#right + 1] = id
end
for _, id in ipairs(right) do
  left[#left + 1] = id
end
redis.call('RPUSH', ready, unpack(left))
local pairs_of_two = {}
for _, a in ipairs(ids) do
  for _, b in ipairs(ids) do
    table.insert(pairs_of_two, a .. b)
  end
end
redis.call('RPUSH', ready, unpack(pairs_of_two))
