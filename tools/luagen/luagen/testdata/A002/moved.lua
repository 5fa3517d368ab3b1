--- Moved takes its arguments one by one.
---@contract all-or-nothing
---@retry never
---@key  h     hash
---@arg  who   string
---@reply int

local h = KEYS[1]
local n = table.remove(ARGV, 1)
local who = ARGV[1]
return redis.call('HSET', h, n, who)
