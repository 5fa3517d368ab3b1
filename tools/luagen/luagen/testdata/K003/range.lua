--- Range does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
local second, third = KEYS[2], ARGV[1]
local i = 1
local x = ARGV[i]
local function all(...) return select('#', ...) end
redis.call('DEL', lock, second, third, x)
return all(unpack(KEYS)) + #ARGV + KEYS[0]
