--- Stored replaces keys of any type, and reads what one of them held.
---@contract all-or-nothing
---@key  list  list
---@key  board zset
---@key  out   list
---@key  best  zset
---@key  name  string
---@key  last  string
---@arg  value string

local list, board, out, best, name, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local value = ARGV[1]
redis.call('LLEN', list)
redis.call('ZCARD', board)
redis.call('SET', name, value)
redis.call('SORT', list, 'STORE', out)
redis.call('ZRANGESTORE', best, board, 0, 9)
redis.call('SET', last, value, 'GET')
