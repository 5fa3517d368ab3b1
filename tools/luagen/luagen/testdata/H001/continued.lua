--- Continued speaks.
---@readonly
---@key   lock
---       @arg n int
---@arg   late  string

local lock, late = KEYS[1], ARGV[1]
return redis.call('EXISTS', lock)
