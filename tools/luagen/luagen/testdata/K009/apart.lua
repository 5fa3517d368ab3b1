--- Apart names keys of two slots, one in a call.
---@contract all-or-nothing
---@allow K001 this case is about another rule
---@arg  kind  string

local kind = ARGV[1]
local function count()
  redis.call('INCR', '{a}:n')
end
if kind == 'count' then
  count()
elseif kind == 'b' then
  redis.call('SET', '{b}:x', '1')
elseif kind == 'c' then
  redis.call('SET', '{c}:x', '1')
end
