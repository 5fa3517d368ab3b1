--- Move moves the head of a list of another system.
---@contract all-or-nothing  one write
---@slots any  the names are those of the other system
---@key   from  list = "from:$name"
---@key   to    list
local from, to = KEYS[1], KEYS[2]
redis.call('LMOVE', from, to, 'LEFT', 'RIGHT')
