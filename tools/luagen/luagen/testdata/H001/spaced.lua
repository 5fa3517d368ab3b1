--- Spaced speaks.
---@readonly
--- @key  lock  string
--- prose
---@reply bool

local lock = KEYS[1]
return redis.call('EXISTS', lock)
