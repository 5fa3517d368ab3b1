--- Allow does what the test wants.
---@contract all-or-nothing
---@allow S001 why
---@allow K001
---@allow K001 nothing to allow
---@key lock
---@reply int

local lock = KEYS[1]
return redis.call('EXISTS', lock)
