--- Taken replies with the status of a SET that may do nothing.
---@contract all-or-nothing
---@retry  safe
---@key    n  string
---@arg    v  string
---@reply  string

local n, v = KEYS[1], ARGV[1]
return redis.call('SET', n, v, 'NX', 'PX', 1000)
