--- Absent has a guard that is not there.
---@contract all-or-nothing
---@guard gaurd.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
