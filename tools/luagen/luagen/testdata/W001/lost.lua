--- Lost removes the item before it is added elsewhere.
---@contract dup-only
---@key  from  list
---@key  to    list
---@arg  item  bytes

local from, to = KEYS[1], KEYS[2]
local item = ARGV[1]
redis.call('LTRIM', from, 0, -1)
if redis.call('LREM', from, 1, item) == 0 then
  redis.call('RPUSH', to, 'nothing')
  return
end
redis.call('RPUSH', to, item)
