--- Extend restarts the lease of a held lock.
---
--- It never creates a lock: an expired lease stays expired, even if no other owner has acquired the
--- lock since. It works on a server that is over its memory limit. The first extension of a lease
--- that was handed over confirms it.
---
---@contract dup-only  an error half-way leaves the lease unchanged or extended
---@retry    safe  the owner is compared
---@key      lock   string  see acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the new lease, from now
---@reply    enum(expired=0, extended=1, taken=2, revoked=3)  taken: another owner holds it; revoked: it was
---          taken away by force
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl = ARGV[1], ARGV[2]
if not (ttl + 0 >= 1) then
  error('ttl must be 1 or more')
end

local record = redis.call('GET', lock)
if not record then
  return 0
end
--< part/read.lua
if holder ~= owner then
  --< part/void.lua
  return is_void(void, owner) and 3 or holder == '-' and 0 or 2
end
if redis.call('PTTL', lock) <= tonumber(after) then
  return 0
end
local life = string.format('%.0f', ttl + after + 1)
redis.call('PEXPIRE', lock, life)
if sign ~= '2' and void == '-' then
  return 1
end

--< part/now_us.lua
--< part/record.lua
--< part/write.lua
-- The holder that was handed the lock speaks for the first time: it is confirmed.
lock_write(lock, fence_was, sign == '2' and 1 or sign, void, tail, life)
return 1
