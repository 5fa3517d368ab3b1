--- LockInfo reads who holds a lock and who waits for it.
---
---@readonly
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      max    int  min=0 max=1000  the most entries of the queue to return
---@reply    (held bool, fence int, owner string, remaining ms, note string, waiting int, entries string[])  remaining: of the lease, or of the rest after one
---@cost     O(max)

local lock, queue = KEYS[1], KEYS[2]
local max = tonumber(ARGV[1])

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local record = redis.call('GET', lock)
local fence, holder, remaining, held = '0', '', 0, ''
if record then
  local f, _, owner, start, length, rest, _, note =
    string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  fence, holder, held = f, owner, note
  remaining = start / 1000 + length - now / 1000
  if remaining <= 0 then
    holder, held, remaining = '', '', remaining + rest
  end
end
local entries = max > 0 and redis.call('ZRANGE', queue, 0, max - 1) or {}
return {holder ~= '' and 1 or 0, fence, holder, math.max(math.ceil(remaining), 0), held, redis.call('ZCARD', queue), entries}
