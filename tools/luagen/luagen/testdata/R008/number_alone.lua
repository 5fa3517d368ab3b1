--- NumberAlone is a number that can be missing.
---@readonly
---@key    n  string
---@reply  int

local n = KEYS[1]
return tonumber(redis.call('GET', n))
