--- Slots has no reason.
---@contract all-or-nothing
---@slots any
---@key lock
local lock = KEYS[1]
redis.call('DEL', lock)
