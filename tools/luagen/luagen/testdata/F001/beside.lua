--- Beside is embedded as it is.
---@readonly
---@key lock

local lock = KEYS[1]
--< part/now.lua
return redis.call('EXISTS', lock)
