--- Unpacked takes the command from a list: C003 alone reports it, C004 does not.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
local getter = {'STRLEN'}
return redis.call(unpack(getter), lock)
