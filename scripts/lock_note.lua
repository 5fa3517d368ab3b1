--- LockNote changes the note of a held lock.
---
---@contract all-or-nothing  one write
---@retry    safe  it sets the same note again
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      note   string  what other callers read about the holder from now on
---@reply    bool  whether the owner holds the lock
---@cost     O(1)

local lock = KEYS[1]
local owner, note = ARGV[1], ARGV[2]

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->

local record = redis.call('GET', lock)
if not record then
  return 0
end
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
if holder ~= owner or start / 1000 + length <= now_us / 1000 then
  return 0
end
--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
end
-->
redis.call('SET', lock, lock_record(fence_was, waiting, holder, start, length, rest, last, note), 'KEEPTTL')
return 1
