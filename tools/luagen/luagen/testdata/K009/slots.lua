--- Slots names keys that no cluster has in one place.
---@contract all-or-nothing
---@allow K001 this case is about another rule
---@key  own   string = "own:{luatomic}:$name"
---@key  other string
---@arg  from  string
---@arg  to    string

local own, other = KEYS[1], KEYS[2]
local from, to = ARGV[1], ARGV[2]
redis.call('SET', own, 'x')
redis.call('SET', '{luatomic}:y', 'x')
local prefix = '{stock}:'
redis.call('SET', prefix .. from, 'x')
redis.call('SET', 'plain', 'x')
redis.call('SET', 'wallet:{' .. from .. '}', 'x')
redis.call('SET', 'wallet:{' .. to .. '}', 'x')
redis.call('SET', 'wallet:{' .. to .. '}:log', 'x')
redis.call('SET', 'wallet:{' .. to .. ':log}', 'x')
-- Any of these may have the tag of the others.
redis.call('SET', other, 'x')
redis.call('SET', other .. ':log', 'x')
redis.call('SET', 'log:' .. other, 'x')
redis.call('SET', 'log:' .. from, 'x')
redis.call('SET', '{' .. other .. '}', 'x')
