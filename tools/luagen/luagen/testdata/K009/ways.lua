--- Ways has a return between two keys, or none.
---@contract all-or-nothing
---@allow K001 this case is about another rule
---@arg    kind  string
---@reply  int

local kind = ARGV[1]
if kind == 'd' then
  redis.call('SET', '{d}:x', '1')
  return 1
end
if kind == 'e' then
  redis.call('SET', '{e}:x', '1')
end
redis.call('SET', '{f}:x', '1')
return 0
