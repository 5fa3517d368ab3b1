--- GuardNames names no file.
---@contract all-or-nothing
---@guard guard_names.lua
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
