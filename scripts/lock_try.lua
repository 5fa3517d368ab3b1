--- LockTry acquires a lock for an owner if the lock is free and has no waiters.
---
--- This is the short script for the usual case. See lock_acquire.lua for the fields of the string, and for a lock with
--- waiters.
---
---@contract all-or-nothing  one write
---@retry    safe  an owner that holds the lock gets its fence
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  a token made for this acquire
---@arg      ttl    ms  min=1  the lease
---@arg      keep   ms  min=1  how long the string stays
---@arg      delay  ms  min=0  the lock delay: how long the lock stays taken after a lease without a release
---@arg      note   string  what other callers read about the holder
---@reply    (state enum(held=0, acquired=1, wanted=2), fence int, remaining ms, holder string)
---          wanted: the lock is free and has waiters; remaining: of the holder's lease with its
---          lock delay, or of this owner's lease where it held the lock before; holder: its note
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl, keep, delay, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

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

local record = redis.call('GET', lock)
local fence, releaser = now_us, '-'
if record then
  if string.sub(record, 17, 27) == free then
    releaser = string.sub(record, 28, -2) -- the other fields need no parsing
  else
    --< part/lock_read.lua
    -- The record of a lock, see lock_acquire.lua: this is its one parser.
    local fence_was, waiting, holder, start, length, rest, last, held =
      string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    -->
    local left = start / 1000 + length - now_us / 1000
    if holder == owner and left > 0 then
      return {1, fence_was, math.max(math.floor(left), 1), ''}
    end
    left = left + rest
    if left > 0 then
      return {0, fence_was, math.ceil(left), held}
    elseif waiting == '1' then
      return {2, fence_was, 0, ''}
    end
    releaser = last
  end
  if record >= now_us then -- as text; both begin with 16 digits
    fence = string.format('%.0f', string.match(record, '^%d+') + 1)
  end
end

--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
end
-->
redis.call('SET', lock, lock_record(fence, '0', owner, now_us, ttl, delay, releaser, note), 'PX', keep)
return {1, fence, 0, ''}
