--- Reserve takes pieces of several items from the stock of a shop, of all or of none.
---@contract all-or-nothing
---@key    log   list = "log:{$shop}"  what was taken
---@keys   sku   string = "stock:{$shop}:$sku"  pieces left
---@arg    order  string
---@args   sku   (n int, note string)  max=100
---@reply  bool
local log, order = KEYS[1], ARGV[1]
redis.call('LLEN', log)
for i = 2, #KEYS do
  if tonumber(redis.call('GET', KEYS[i]) or 0) < tonumber(ARGV[2 * i - 2]) then
    return 0
  end
end
for i = 2, #KEYS do
  redis.call('DECRBY', KEYS[i], ARGV[2 * i - 2])
  redis.call('RPUSH', log, order .. ' ' .. ARGV[2 * i - 1])
end
return 1
