--- RPCID reads a number.
---@readonly
---@key counter  string
---@reply int?

local counter = KEYS[1]
return redis.call('GET', counter)
