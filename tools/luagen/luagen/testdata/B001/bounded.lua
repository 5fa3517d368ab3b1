--- Bounded unpacks lists that cannot be long.
---@contract dup-only
---@allow U002 this case is about another rule
---@key due  zset
---@key ready list
---@arg now  int

local due, ready = KEYS[1], KEYS[2]
local now = ARGV[1]
redis.call('LLEN', ready)
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, 100)
if #ids > 0 then
  redis.call('ZREM', due, unpack(ids))
end
local words = {'a'}
words[#words + 1] = now
table.insert(words, 'b')
redis.call('RPUSH', ready, unpack(words))
local all = redis.call('LRANGE', ready, 0, 9000)
redis.call('RPUSH', ready, unpack(all))
for i = 1, #ids do
  words[#words + 1] = ids[i]
end
local part = {}
for i = 1, #ids do
  part[#part + 1] = ids[i]
  if #part == 500 then
    redis.call('RPUSH', ready, unpack(part))
    part = {}
  end
end
local function put(list) redis.call('RPUSH', ready, unpack(list)) end
for i = 1, #ids, 100 do
  local slice = {}
  for j = i, math.min(i + 99, #ids) do
    slice[#slice + 1] = ids[j]
  end
  put(slice)
end
local function some(...) return redis.call('RPUSH', ready, unpack(arg)) end
some('x', now)
