--- Forms has loops that an argument bounds, and loops that data bounds.
---@contract dup-only
---@key  list  list
---@arg  a     int
---@arg  b     int
---@arg  c     int
---@arg  d     int
---@arg  e     int
---@arg  body  string
---@arg  id    string
---@uses cjson

local list = KEYS[1]
local a, b, c, d = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local e, body, id = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local turn = redis.call('LLEN', list)
local function push(times)
  for i = 1, times do
    redis.call('RPUSH', list, i)
  end
end
push(a)
local function twice(n)
  return n * 2
end
for i = 1, twice(a) do
  redis.call('RPUSH', list, i)
end
for i = 1, a > 0 and a or 10 do
  redis.call('RPUSH', list, i)
end
while turn ~= b do
  turn = turn + 1
end
repeat
  turn = turn + 1
until turn == b
while not (turn >= c) do
  turn = turn + 1
end
while true do
  if turn >= c then
    break
  end
  turn = turn + 1
end
while id == '' or turn < d do
  turn = turn + 1
end
while e > 0 do
  if turn > 0 then
    e = e - 1
  end
end
while 1 do
  turn = turn + 1
end
while not nil do
  turn = turn + 1
end
local order = cjson.decode(body)
for i = 1, order.count do
  redis.call('RPUSH', list, i)
end
-- Data or a limit ends these.
for i = 1, a do
  local job = redis.call('LPOP', list)
  if not job then
    break
  end
  turn = turn + i
end
while turn < b do
  if redis.call('RPOP', list) == false then
    break
  end
  turn = turn + 1
end
local job
repeat
  job = redis.call('RPOP', list)
until job == id or not job
for i = 1, #order.ids do
  redis.call('RPUSH', list, order.ids[i])
end
while turn < 5 and id ~= '' do
  turn = turn + 1
end
if order.size > 100 then
  return
end
for i = 1, order.size do
  redis.call('RPUSH', list, i)
end
