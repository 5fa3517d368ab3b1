--- AskedAlone is a number, or nothing.
---@readonly
---@key    n  string
---@reply  int?

local n = KEYS[1]
return tonumber(redis.call('GET', n))
