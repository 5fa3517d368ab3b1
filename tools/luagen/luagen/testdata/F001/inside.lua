--- Inside has a fragment inside another.
---@readonly
---@key lock

local lock = KEYS[1]
--< part/now.lua
--< part/now.lua
-->
-->
return redis.call('EXISTS', lock)
