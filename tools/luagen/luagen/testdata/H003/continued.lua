--- Continued speaks.
---@contract all-or-nothing
---@key   lock  string
---@arg   n     int  min=1
---             mim=3
---@arg   ttl   ms
---             min=1 the lease
---@reply (done bool,
---        left nothing)

local lock, n, ttl = KEYS[1], ARGV[1], ARGV[2]
return redis.call('SET', lock, n, 'PX', ttl)
