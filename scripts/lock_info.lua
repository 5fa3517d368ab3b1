--- LockInfo reads the holder of a lock and its waiters.
---
---@readonly
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      max    int  min=0 max=1000  the most entries of the queue to return
---@reply    (held bool, fence int, owner string, remaining ms, note string, waiting int,
---          entries string[])  remaining: of the lease, or of the lock delay after it
---@cost     O(max)

local lock, queue = KEYS[1], KEYS[2]
local max = tonumber(ARGV[1])
if not (max and max >= 0 and max <= 1000) then
  error('max must be 0 to 1000')
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

local record = redis.call('GET', lock) or '0' .. free .. '- '
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
local remaining = start / 1000 + length - now_us / 1000
if remaining <= 0 then
  holder, held, remaining = '', '', math.max(remaining + rest, 0)
end
local entries = max > 0 and redis.call('ZRANGE', queue, 0, max - 1) or {}
local places = redis.call('ZCARD', queue)
return {holder ~= '' and 1 or 0, fence_was, holder, math.ceil(remaining), held, places, entries}
