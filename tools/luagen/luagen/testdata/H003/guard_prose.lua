--- GuardProse says why.
---@contract all-or-nothing
---@guard guard.lua  because
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
