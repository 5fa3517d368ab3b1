--- Server takes the server's clock, and the caller's beside it.
---@contract all-or-nothing
---@key    calls   zset
---@arg    now     int
---@arg    window  int
---@reply  int

local calls = KEYS[1]
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local drift = now - tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', calls, '-inf', now - window)
return drift
