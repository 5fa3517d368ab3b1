--- Err does what the test wants: GET of nothing is false, and asked for.
---@contract dup-only
---@key n
---@reply int

local n = KEYS[1]
local r = redis.pcall('INCR', n)
if r.err then return 1 end
local s = redis.pcall('INCR', n)
if type(s) == 'table' and s.err then return 2 end
local t = redis.pcall('LRANGE', n, 0, 9)
if t.err then return 3 end
return 0
