--- LockAcquireAll acquires several locks of one slot for one owner, all of them or none.
---
--- It acquires a free lock even if the lock has waiters: an owner of several locks holds none of them while it waits.
--- See lock_acquire.lua for the fields of a string.
---
---@contract dup-only  an error half-way leaves some locks with this owner, and its repeat keeps them
---@retry    safe  an owner keeps the locks that it holds
---@keys     lock  string  max=100  see lock_acquire.lua
---@arg      owner  string  a token made for this acquire
---@arg      ttl    ms  min=1  the lease
---@arg      delay  ms  min=0  the lock delay: how long a lock stays taken after a lease without a release
---@arg      note   string  what other callers read about the holder
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that
---          another holds, counted from 1, or 0; remaining, holder: of that lock
---@cost     O(1) for each lock

local owner, ttl, delay, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if #KEYS > 100 then
  error('lock: at most 100')
end
if #owner + #delay + #note > 2000 then
  error('owner, delay and note: at most 2000 bytes')
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
--< part/lock_free.lua
-- The fields of a free lock without waiters, between its fence, which has 16 digits, and its
-- last releaser.
local free = ' 0 - 0 0 0 '
-->

local fences, signs = {}, {}
for i, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock) or '0' .. free .. '- '
  --< part/lock_read.lua
  -- The record of a lock, see lock_acquire.lua: this is its one parser.
  local fence_was, waiting, holder, start, length, rest, last, held =
    string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  -->
  local left = start / 1000 + length - now_us / 1000
  signs[i] = {waiting, last}
  if holder == owner and left > 0 then
    fences[i] = fence_was
  elseif left + rest > 0 then
    return {i, math.ceil(left + rest), held, {}}
  else
    fences[i] = fence_was < now_us and now_us or string.format('%.0f', fence_was + 1)
  end
end

--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
end
-->
for i, lock in ipairs(KEYS) do
  local record = lock_record(fences[i], signs[i][1], owner, now_us, ttl, delay, signs[i][2], note)
  redis.call('SET', lock, record, 'PX', ttl + 60000)
end
return {0, tonumber(ttl), '', fences}
