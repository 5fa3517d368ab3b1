--- ReadMode reads an optional enum.
---@readonly
---@script ReadMode
---@key job  string
---@reply enum(on=1, off=2)?

local job = KEYS[1]
return redis.call('GET', job)
