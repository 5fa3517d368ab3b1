--- Computed does what the test wants.
---@contract all-or-nothing
---@key lock
---@arg name string
---@reply int

local lock = KEYS[1]
local name = ARGV[1]
return redis.call(name, lock)
