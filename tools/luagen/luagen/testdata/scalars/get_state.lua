--- GetState reads an enum.
---@readonly
---@key job  string
---@reply enum(idle=0, busy=1)

local job = KEYS[1]
return redis.call('EXISTS', job)
