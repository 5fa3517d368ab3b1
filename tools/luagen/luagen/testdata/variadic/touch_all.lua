--- TouchAll renews keys and gives each id a mark.
---@contract all-or-nothing
---@key  index  zset
---@keys item   hash  max=100  what to renew
---@arg  ttl    ms
---@args id     string  max=500  marks
---@reply string[]  the ids

local index = KEYS[1]
local ttl = ARGV[1]
redis.call('ZCARD', index)
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ttl)
end
local ids = {}
for i = 2, #ARGV do
  ids[#ids + 1] = ARGV[i]
  redis.call('ZADD', index, 0, ARGV[i])
end
return ids
