--- Loop has a fragment that has itself.
---@readonly
---@key lock

local lock = KEYS[1]
--< part/nested.lua
return redis.call('EXISTS', lock)
