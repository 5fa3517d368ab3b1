--- Stray has tags that are comments alone.
---   @script Astray
---@contract all-or-nothing
---@key lock
----@arg n int
---	@arg m int
--@rply int
  ---@cost O(1)
-- @guard guard.lua

local lock = KEYS[1] -- @key is named in a comment behind code
local text = [[
--@reply int
]]
return redis.call('DEL', lock, text)
