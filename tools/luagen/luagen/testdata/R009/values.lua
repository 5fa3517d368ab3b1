--- Values takes the truth of a number for a value.
---@contract all-or-nothing
---@key    s  set
---@arg    m  string
---@reply  (member bool, gone bool, size int, any int)

local s, m = KEYS[1], ARGV[1]
local known = redis.call('EXISTS', s)
local size = (known and redis.call('SCARD', s)) or 0
local any = redis.call('SCARD', s) or 0
return {redis.call('SISMEMBER', s, m) and 1 or 0, not redis.call('EXISTS', s), size, any}
