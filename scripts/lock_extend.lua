--- LockExtend starts the lease of a held lock anew.
---
--- It never creates a lock: an expired lease stays expired, even if no other owner has acquired the lock since.
--- It works on a server that is over its memory limit. The first extension of a lease that was handed over confirms
--- it.
---
---@contract dup-only  an error half-way leaves the lease unchanged or extended
---@retry    safe  the owner is compared
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the new lease, from now
---@reply    enum(expired=0, extended=1, taken=2, revoked=3)  taken: another owner holds it; revoked: it was
---          taken away by force
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl = ARGV[1], ARGV[2]

local record = redis.call('GET', lock)
if not record then
  return 0
end
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
local fence_was, sign, void, tail, holder, delay, after, note =
  string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
  return redis.error_reply('LAYOUT the key holds no lock of this version')
end
-->
if holder ~= owner then
  --< part/lock_void.lua
  -- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
  local function is_void(void, token)
    return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
  end
  -->
  return is_void(void, owner) and 3 or holder == '-' and 0 or 2
end
if redis.call('PTTL', lock) <= tonumber(after) then
  return 0
end
redis.call('PEXPIRE', lock, ttl + after + 1)
if sign ~= '2' then
  return 1
end

--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(fence, sign, void, tail)
  return '2 ' .. fence .. ' ' .. sign .. ' ' .. void .. tail
end
-->
--< part/lock_confirm.lua
-- The holder was handed the lock and speaks for the first time: it is confirmed.
redis.call('SET', lock, lock_record(fence_was, 1, void, tail), 'KEEPTTL')
-->
return 1
