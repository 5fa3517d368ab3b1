--- LockAcquireAll takes several locks of one slot for one owner, all of them or none.
---
--- It takes a free lock although others wait for it: those who take several at once
--- hold nothing while they wait. See lock_acquire.lua for what a string holds.
---
---@contract dup-only  an error half-way leaves some locks with this owner, whose repeat finds them its own
---@retry    safe  an owner keeps what it holds
---@keys     lock  string  max=100  see lock_acquire.lua
---@arg      owner  string  a token of this acquire alone
---@arg      ttl    ms  min=1  the lease
---@arg      delay  ms  min=0  how long a lock rests after a lease that was not released
---@arg      note   string  what others are told of the holder
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that
---          another holds, counted from 1, or 0; remaining, holder: of that one
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
-- What stands in the record of a free lock that nobody waits for, between the fence, which
-- has 16 digits, and who released last.
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
