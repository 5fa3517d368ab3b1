--- ListJobs reads rows.
---@readonly
---@key   jobs  zset
---@arg   limit  int  min=1 max=1000
---@reply (id string, score float)[]

local jobs = KEYS[1]
local limit = tonumber(ARGV[1])
return redis.call('ZRANGE', jobs, 0, limit - 1, 'WITHSCORES')
