--- Helpers reads arguments and replies by functions of its own.
---@contract dup-only
---@key list list
---@arg n int max=100
---@args part string max=100

local list, n = KEYS[1], tonumber(ARGV[1])
local at = 1
local function take()
  at = at + 1
  local part = ARGV[at]
  if not part then
    error('an argument is missing')
  end
  return part
end
for i = 1, n do
  redis.call('RPUSH', list, take())
end
local function pop()
  return redis.call('LPOP', list)
end
while n > 0 do
  n = n - 1
  if not pop() then
    break
  end
end
local function twice(x)
  return 2 * x
end
for i = 1, tonumber(ARGV[1]) do
  redis.call('RPUSH', list, twice(3))
end
