--- StockTake takes n pieces from the stock, if there are as many.
---
---@contract all-or-nothing
---@guard guard.lua
---@key      stock  string = "stock:{$item}"  pieces left
---@arg      n      int  min=1
---@reply    int    pieces left
---@error    SOLD_OUT  fewer pieces are left

local stock, n = KEYS[1], tonumber(ARGV[1])
local left = tonumber(redis.call('GET', stock) or 0)
if left < n then
  return redis.error_reply('SOLD_OUT only ' .. left)
end
return redis.call('DECRBY', stock, n)
