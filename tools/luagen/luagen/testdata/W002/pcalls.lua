--- Pcalls does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
redis.pcall('DEL', lock)
local r = redis.pcall('INCR', lock)
local ok, v = pcall(redis.call, 'GET', lock)
local s = redis.pcall('INCR', lock)
if type(s) == 'table' and s.err then
  return 0
end
local good = pcall(redis.call, 'GET', lock)
if good then
  return 1
end
return r
