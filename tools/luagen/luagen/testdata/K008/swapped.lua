--- Swapped takes one key for the other.
---@contract all-or-nothing
---@key lock   string
---@key fence  string

local fence = KEYS[1]
local lock = KEYS[2]
redis.call('SET', lock, 1)
redis.call('DEL', fence)
