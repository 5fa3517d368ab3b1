--- Compared limits arguments by each other: the largest of them has no limit.
---@contract dup-only
---@key  list   list
---@arg  n      int
---@arg  limit  int
---@arg  m      int
---@arg  most   int

local list, n, limit = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local m, most = tonumber(ARGV[3]), tonumber(ARGV[4])
if n > limit then
  return
end
for i = 1, n do
  redis.call('RPUSH', list, i)
end
if m > most or most > 100 then
  return
end
for i = 1, m do
  redis.call('RPUSH', list, i)
end
