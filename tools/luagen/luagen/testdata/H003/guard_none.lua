--- GuardNone names nothing.
---@contract all-or-nothing
---@guard
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
