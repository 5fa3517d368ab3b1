--- Calls repeats as often as its arguments say, without a loop.
---@contract dup-only
---@key  list  list
---@arg  a     int
---@arg  b     int
---@arg  c     int  max=10

local list = KEYS[1]
local a, b, c = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local small = math.min(c, 10)
local function down(n)
  if n == 0 then
    return
  end
  redis.call('RPUSH', list, n)
  return down(n - 1)
end
down(a)
local function up(i)
  if i < b then
    redis.call('RPUSH', list, i)
    up(i + 1)
  end
end
up(1)
local function climb(i, last)
  if i > last then
    return
  end
  redis.call('RPUSH', list, i)
  climb(i + 1, last)
end
climb(1, a)
redis.call('RPUSH', list, string.rep('x', a), ('x'):rep(b - 1))
-- Data or a limit ends these.
local function few(n)
  if n > 0 then
    few(n - 1)
  end
end
few(small)
local function drain(n)
  local job = redis.call('LPOP', list)
  if not job then
    return
  end
  drain(n - 1)
end
drain(a)
local function walk(t, depth)
  for _, v in ipairs(t) do
    if type(v) == 'table' then
      walk(v, depth + 1)
    end
  end
end
walk({a, b}, 1)
redis.call('RPUSH', list, string.rep('x', small), ('x'):rep(#list))
