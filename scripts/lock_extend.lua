--- LockExtend restarts the lease of a held lock.
---
--- It never creates a lock: an expired lease stays expired, even if no other owner has acquired the
--- lock since. It works on a server that is over its memory limit. The first extension of a lease
--- that was handed over confirms it.
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
if not (ttl + 0 >= 1) then
  error('ttl must be 1 or more')
end

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
local life = string.format('%.0f', ttl + after + 1)
redis.call('PEXPIRE', lock, life)
if sign ~= '2' and void == '-' then
  return 1
end

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(fence, sign, void, tail)
  return '2 ' .. fence .. ' ' .. sign .. ' ' .. void .. tail
end
-->
--< part/lock_write.lua
-- lock_write stores the record of a lock for its life. A record outlives its void tokens: the time that the life is
-- too short for that is added to it and to the afterlife, so that the lease ends when it did. A second is added too:
-- a repeat finds some ms less to live, and that is enough. A fence that is ahead of the clock has the sign 1.
local function lock_write(lock, fence, sign, void, tail, life)
  local ends = void ~= '-' and string.match(void, '^%d+') or 0
  local short = math.min(ends + 1 - time[1], 11) * 1000 - life
  if short > 0 then
    short = short + 1000
    local holder, after, note = string.match(tail, '^( %S+ %d+ )(%d+)(.*)$')
    tail, life = holder .. string.format('%.0f', after + short) .. note, life + short
  end
  if fence - now_us > 0 then
    sign = math.max(sign, 1)
  end
  redis.call('SET', lock, lock_record(fence, sign, void, tail), 'PX', string.format('%.0f', tonumber(life)))
end
-->
-- The holder that was handed the lock speaks for the first time: it is confirmed.
lock_write(lock, fence_was, sign == '2' and 1 or sign, void, tail, life)
return 1
