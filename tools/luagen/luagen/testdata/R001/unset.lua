--- Unset returns locals that have a value on some paths alone, and others.
---@readonly
---@key   h  hash
---@arg   mode  string
---@reply (a string?, b string?, c string?, d string?, e string?, f int)

local h, mode = KEYS[1], ARGV[1]
local a, b, c, d, e
if redis.call('HEXISTS', h, 'a') == 1 then
  a = redis.call('HGET', h, 'a')
end
if mode == 'x' then
  b = 'x'
else
  b = 'y'
end
for i = 1, 3 do
  c = redis.call('HGET', h, i)
end
d = false
if mode == 'd' then
  d = 'd'
end
if mode == 'e' then
  e = 'e'
end
if not e then
  e = false
end
return {a, b, c, d, e, 1}
