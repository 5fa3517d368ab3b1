--- Kinds compares replies with what they never are.
---@contract all-or-nothing
---@key    n  string
---@key    s  set
---@arg    m  string
---@reply  int

local n, s = KEYS[1], KEYS[2]
local m = ARGV[1]
redis.call('SCARD', s)
local value = redis.call('GET', n)
if value == 5 then
  return 1
end
if redis.call('GET', n) < 10 then
  return 2
end
if redis.call('INCR', n) == '1' then
  return 3
end
if redis.call('EXISTS', n) then
  return 4
end
if m ~= '' and not redis.call('SISMEMBER', s, m) then
  return 5
end
return 0
