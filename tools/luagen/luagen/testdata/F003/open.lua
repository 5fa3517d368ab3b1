--- Open has a guard that reaches into it.
---@contract all-or-nothing
---@guard loose.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
