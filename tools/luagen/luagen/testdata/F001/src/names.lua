--- Names has fragments that are not there.
---@readonly
---@key lock

local lock = KEYS[1]
--< part/nwo.lua
--< part/other.lua
--< now
--<part/../now.lua
--> is an arrow in a comment, and --< is one here
return redis.call('EXISTS', lock)
