--- Never counts, and promises nothing.
---@contract all-or-nothing
---@key n    string

local n = KEYS[1]
redis.call('INCR', n)
