--- Given returns locals that begin as nil.
---@readonly
---@key   h  hash
---@arg   mode  string
---@reply (a string?, b string?, c string?, d string?, e int?, f int)

local h, mode = KEYS[1], ARGV[1]
local a, b, c = nil, nil, nil
local d
local x, e = 1
if mode == 'a' then
  a = 'a'
else
  a = 'b'
end
if mode == 'b' then
  b = 'b'
end
if redis.call('HEXISTS', h, 'c') == 1 then
  c = 'c'
end
if not c then
  c = false
end
return {a, b, c, d, e, x}
