--- Window counts the calls of the last while by the clocks of its callers, the fault.
---@contract dup-only
---@key    calls   zset
---@key    bucket  hash
---@slots any this case has keys of the caller
---@arg    now     int
---@arg    window  int
---@arg    id      string
---@arg    ts      int
---@arg    nowMs   int
---@arg    current_time  int
---@reply  int

local calls, bucket = KEYS[1], KEYS[2]
local now, window, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local ts, nowMs, current_time = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
redis.call('ZREMRANGEBYSCORE', calls, '-inf', now - window)
local from = ts - window
local n = redis.call('ZCOUNT', calls, from, '+inf')
local last = tonumber(redis.call('HGET', bucket, 'at') or 0)
if nowMs - last > window then return n end
local score = current_time + window
redis.call('ZADD', calls, score, id)
redis.call('HSET', bucket, 'at', now)
return n
