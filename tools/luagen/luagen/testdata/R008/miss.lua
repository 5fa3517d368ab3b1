--- Miss takes replies for there that can be false.
---@contract all-or-nothing
---@key    n      string
---@key    h      hash
---@arg    field  string
---@reply  int

local n, h = KEYS[1], KEYS[2]
local field = ARGV[1]
local label = redis.call('HGET', h, field)
local text = 'label ' .. label
local count = tonumber(redis.call('GET', n))
redis.call('HSET', h, text, redis.call('GET', n))
redis.call('SET', n, count + 1)
return redis.call('HGET', h, 'other')
