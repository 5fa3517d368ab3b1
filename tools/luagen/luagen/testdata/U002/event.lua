--- Event stores the times that things have, and asks for what the caller names.
---@contract dup-only
---@key    events  zset
---@key    last    hash
---@slots any this case has keys of the caller
---@arg    now   int
---@arg    ts    int
---@arg    id    string
---@reply  int

local events, last = KEYS[1], KEYS[2]
local now, ts, id = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local stored = tonumber(redis.call('HGET', last, id) or 0)
if ts <= stored then return 0 end
redis.call('ZADD', events, ts, id)
redis.call('HSET', last, id, ts, 'seen', now)
return redis.call('ZCOUNT', events, '-inf', ts)
