--- Codes does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
local n = redis.call('GET', lock)
if n == '1' then return redis.error_reply('INTERNAL') end
if n == '2' then return redis.error_reply(n) end
if n == '3' then return {err = 'lower text'} end
return 1
