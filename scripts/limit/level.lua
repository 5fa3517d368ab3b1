--- Level sets the debt of a limit, whatever it was. What was reserved before is not given back after that.
---
---@contract all-or-nothing  one write
---@retry    never  a late repeat would undo later calls
---@key      limit  string  see part/gcra.lua; expires
---@arg      rate   int  min=1 max=4503599627370496  parts that flow back in a us
---@arg      debt   int  min=0 max=4503599627370496  in parts; 0 deletes the key
---@cost     O(1)

local limit = KEYS[1]
local rate, debt = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (rate and rate >= 1 and rate <= 2 ^ 52 and debt and debt >= 0 and debt <= 2 ^ 52) then
  error('rate must be 1 to 2^52, debt must be 0 to 2^52')
end
--< part/now_us.lua
redis.call('GET', limit) -- a key of another type stops the call here
if debt == 0 then
  redis.call('DEL', limit)
  return
end
local most, tail = debt, now_us .. ' 0 0'
--< part/gcra_set.lua
