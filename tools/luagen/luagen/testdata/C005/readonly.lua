--- Readonly does.
---@readonly
---@key lock
---@reply int

local lock = KEYS[1]
return redis.call('DEL', lock)
