--- LockAcquireAll acquires several locks of one slot for one owner, all of them or none.
---
--- It acquires a free lock even if the lock has waiters: an owner of several locks holds none of them while it waits.
--- See lock_acquire.lua for the record.
---
---@contract dup-only  an error half-way leaves some locks with this owner, and its repeat keeps them
---@retry    safe  an owner keeps the locks that it holds
---@keys     lock  string  max=100  see lock_acquire.lua
---@arg      own    string  the record from the owner on, with a space before it
---@arg      life   ms  min=2  the lease, the afterlife and 1 ms
---@arg      floor  int  min=0 max=4503599627370495  the fences are greater
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that
---          another holds, counted from 1, or 0; remaining, holder: of that lock
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1) for each lock

local own, life, floor = ARGV[1], ARGV[2], ARGV[3]
if not (life + 0 >= 2) then
  error('life must be 2 or more')
end
--< part/lock_floor.lua
-- The bounds of the header hold for a call that was not made in Go, too.
local least = tonumber(floor)
if not (least and least >= 0 and least < 2 ^ 52) then
  error('floor must be 0 to 4503599627370495')
end
-->
if #KEYS > 100 then
  error('lock: at most 100')
end
if #own > 2000 then
  error('own: at most 2000 bytes')
end
local owner = string.match(own, '^ (%S+) ')

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
--< part/lock_fence_after.lua
-- fence_after is the next fence: the server's time, or one more than the fence and the floor given.
local function fence_after(fence, floor)
  return string.format('%.0f', math.max(now_us, fence + 1, floor + 1))
end
-->
--< part/lock_void.lua
-- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
local function is_void(void, token)
  return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
end
-->
local fences, rows = {}, {}
for i, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock) or '2 0 0 - - 0 0 '
  --< part/lock_read.lua
  -- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
  local fence_was, sign, void, tail, holder, delay, after, note =
    string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
  if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
    return redis.error_reply('LAYOUT the key holds no lock of this version')
  end
  -->
  local left = redis.call('PTTL', lock) - after
  rows[i] = {sign == '0' and 0 or 1, void}
  if holder == owner and left > 0 then
    fences[i] = fence_was
  elseif holder ~= '-' and left + delay > 0 or is_void(void, owner) then
    return {i, math.max(left + delay, 1), note, {}}
  else
    fences[i] = fence_after(fence_was, floor)
  end
end

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
for i, lock in ipairs(KEYS) do
  lock_write(lock, fences[i], rows[i][1], rows[i][2], own, life)
end
return {0, 0, '', fences}
