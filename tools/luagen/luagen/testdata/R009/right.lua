--- Right compares each reply with its like.
---@contract all-or-nothing
---@key    n  string
---@key    s  set
---@arg    m  string
---@reply  int

local n, s = KEYS[1], KEYS[2]
local m = ARGV[1]
local value = redis.call('GET', n)
redis.call('SCARD', s)
if value == '5' or tonumber(value) == 5 or value == 5 then
  return 1
end
if redis.call('SET', n, m, 'NX') and redis.call('SISMEMBER', s, m) == 1 then
  return 2
end
if redis.call('INCR', n) == 1 then
  return 3
end
return redis.call('EXISTS', n) or 0
