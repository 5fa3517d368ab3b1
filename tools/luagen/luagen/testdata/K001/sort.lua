--- Sort stores under an argument, and reads what patterns name.
---@contract all-or-nothing
---@key  list list
---@key  out  list
---@arg  name string
---@arg  by   string

local list, out = KEYS[1], KEYS[2]
local name, by = ARGV[1], ARGV[2]
redis.call('SORT', list, 'STORE', name)
redis.call('SORT', list, 'BY', 'w_*', 'GET', '#', 'GET', 'o_*->name', 'STORE', out)
redis.call('SORT_RO', list, 'BY', by)
redis.call('SORT', list, 'BY', 'nosort', 'GET', '#', 'ALPHA', 'STORE', out)
