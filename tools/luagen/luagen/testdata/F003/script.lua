--- Script has another script for its guard.
---@contract all-or-nothing
---@guard absent.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
