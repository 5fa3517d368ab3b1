--- Guarded does what the test wants.
---@contract all-or-nothing
---@error FENCED  the guard says this itself
---@guard guard.lua
---@key lock

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 1 then return redis.error_reply('FENCED now') end
