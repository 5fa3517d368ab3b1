--- Peek looks.
---@readonly
---@key lock
---@reply (there bool, at int)

local lock = KEYS[1]
--< part/now.lua
return {redis.call('EXISTS', lock), tonumber(time[1])}
