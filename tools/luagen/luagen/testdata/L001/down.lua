--- Down counts its arguments down.
---@contract dup-only
---@key list list
---@arg n    int
---@arg m    int
---@arg some int
---@arg half int

local list = KEYS[1]
local n, m, some, half = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
while n > 0 do
  redis.call('LPUSH', list, n)
  n = n - 1
end
repeat
  redis.call('LPUSH', list, m)
  m = m - 1
until m <= 0
if some > 100 then
  some = 100
end
while some > 0 do
  redis.call('LPUSH', list, some)
  some = some - 1
end
while half > 1 do
  redis.call('LPUSH', list, half)
  half = math.floor(half / 2)
end
