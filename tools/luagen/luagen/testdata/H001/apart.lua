--- Apart speaks.
---@readonly
---@key   lock  string  what a lock
---
---       is made of
---@reply bool

local lock = KEYS[1]
return redis.call('EXISTS', lock)
