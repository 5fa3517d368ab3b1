--- Pair returns a field that can be missing.
---@readonly
---@key    h  hash
---@reply  (size int, name string)

local h = KEYS[1]
return {redis.call('HLEN', h), redis.call('HGET', h, 'name')}
