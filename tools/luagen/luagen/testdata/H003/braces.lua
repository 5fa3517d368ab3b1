--- Braces speaks.
---@readonly
---@key   lock  string = "lock:{$name"
---@reply bool

local lock = KEYS[1]
return redis.call('EXISTS', lock)
