--- Guarded has a guard that does not parse.
---@contract all-or-nothing
---@guard bad_guard.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
