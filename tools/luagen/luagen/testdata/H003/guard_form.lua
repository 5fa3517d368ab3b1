--- GuardForm names a path.
---@contract all-or-nothing
---@guard ../guard.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
