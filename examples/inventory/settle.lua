--- Settle ends a reservation: the pieces are sold, or go back to the stock.
---
--- (1) One HSET writes the stock and empties the reservation. (2) A mark takes its place for an hour: a copy of Reserve
--- that was late takes nothing. No copy of a call is on its way for longer. (3) What the hash has is what is reserved.
---
---@contract dup-only  one write moves the pieces; an error behind it leaves the reservation empty, and the rest to a
---          repeat
---@retry    safe  what is settled is empty, or not there
---@key      shop  hash = "shop:{$shop}"  see reserve.lua
---@key      mark  string = "shop:{$shop}:$id"  see reserve.lua
---@arg      id    string  of the reservation
---@arg      how   enum(sold=0, returned=1)
---@reply    int  the pieces that are sold or went back
---@cost     O(k) for k articles

local shop, mark, id, how = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local reserved = redis.call('HGET', shop, 'r:' .. id) or ''
local pieces, write = 0, {'r:' .. id, ''}
for article, n in string.gmatch(reserved, '([^=\n]+)=(%d+)\n') do
  pieces = pieces + n
  if how == '1' then
    write[#write + 1] = 's:' .. article
    write[#write + 1] = (redis.call('HGET', shop, 's:' .. article) or 0) + n
  end
end
redis.call('HSET', shop, unpack(write, 1, #write))
redis.call('SET', mark, '', 'PX', 3600000)
redis.call('HDEL', shop, 'r:' .. id)
return pieces
