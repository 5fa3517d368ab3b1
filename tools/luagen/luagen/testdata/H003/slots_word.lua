--- SlotsWord has another word.
---@contract all-or-nothing
---@slots many  because
---@key lock
local lock = KEYS[1]
redis.call('DEL', lock)
