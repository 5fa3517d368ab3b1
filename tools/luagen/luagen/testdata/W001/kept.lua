--- Kept adds the item before it is removed.
---@contract dup-only
---@key  from  list
---@key  to    list
---@arg  item  bytes

local from, to = KEYS[1], KEYS[2]
local item = ARGV[1]
redis.call('RPUSH', to, item)
redis.call('LREM', from, 1, item)
