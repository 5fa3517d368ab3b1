--- Loops runs as long as the caller says.
---@contract all-or-nothing
---@key a    list
---@arg n    int  max=10
---@arg m    int  max=10
---@arg k    int  max=10

local a = KEYS[1]
local n, m, k = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), 10), tonumber(ARGV[3])
for i = 1, n do
  redis.call('RPUSH', a, i)
end
for i = 1, m do
  redis.call('RPUSH', a, i)
end
local last = n + 1
for i = n, last do
  redis.call('RPUSH', a, i)
end
if k > 10 then
  return
end
for i = 1, k do
  redis.call('RPUSH', a, i)
end
for i = 1, #ARGV do
  redis.call('RPUSH', a, i)
end
local turn = 0
while turn < n do
  turn = turn + 1
end
while turn < m do
  turn = turn + 1
end
repeat
  turn = turn + 1
until turn >= n
repeat
  if turn > 5 then
    break
  end
until false
while true do
  turn = turn + 1
end
