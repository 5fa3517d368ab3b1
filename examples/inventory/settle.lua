--- Settle ends a reservation: the pieces are sold, or go back to the stock.
---
---@contract all-or-nothing  one write
---@retry    safe  what was given back is empty, what was sold is not there
---@key      shop  hash = "shop:{$shop}"  see reserve.lua
---@arg      id    string  of the reservation
---@arg      how   enum(sold=0, returned=1)
---@reply    int  the pieces that are sold or went back
---@cost     O(k) for k articles

local shop, id, how = KEYS[1], ARGV[1], ARGV[2]
local reserved = redis.call('HGET', shop, 'r:' .. id)
if not reserved or reserved == '' then
  return 0
end
local pieces, write = 0, {'r:' .. id, ''}
for article, n in string.gmatch(reserved, '([^=\n]+)=(%d+)\n') do
  pieces = pieces + n
  write[#write + 1] = 's:' .. article
  write[#write + 1] = (redis.call('HGET', shop, 's:' .. article) or 0) + n
end
if how == '1' then
  redis.call('HSET', shop, unpack(write, 1, #write))
else
  redis.call('HDEL', shop, 'r:' .. id)
end
return pieces
