--- Fence raises the fence of a held lock, so that several servers agree on one fence.
---
---@contract all-or-nothing  one write
---@retry    safe  a fence is never lowered
---@key      lock   string  see acquire.lua
---@arg      owner  string  the token that acquired
---@arg      least  int  min=0 max=4503599627370496  the new fence, unless the fence is greater
---@reply    bool  whether the owner holds the lock
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1)

local lock = KEYS[1]
local owner, least = ARGV[1], ARGV[2]
if not (tonumber(least) and tonumber(least) >= 0 and tonumber(least) <= 2 ^ 52) then
  error('least must be 0 to 4503599627370496')
end

local record = redis.call('GET', lock)
if not record then
  return 0
end
--< part/read.lua
if holder ~= owner or redis.call('PTTL', lock) <= tonumber(after) then
  return 0
end
if tonumber(fence_was) < tonumber(least) then
  --< part/record.lua
  redis.call('SET', lock, lock_record(least, sign, void, tail), 'KEEPTTL')
end
return 1
