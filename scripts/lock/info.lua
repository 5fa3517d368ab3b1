--- Info reads the holder of a lock and its waiters.
---
---@readonly
---@key      lock   string  see acquire.lua
---@key      queue  list  see acquire.lua
---@arg      max    int  min=0 max=1000  the most entries of the queue to return
---@reply    (held bool, fence int, owner string, remaining ms, note string, waiting int,
---          entries string[])  remaining: of the lease, or of the lock delay after it
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(max)

local lock, queue = KEYS[1], KEYS[2]
local max = tonumber(ARGV[1])
if not (max and max >= 0 and max <= 1000) then
  error('max must be 0 to 1000')
end

local record = redis.call('GET', lock) or '2 0 0 - - 0 0 '
--< part/read.lua
local remaining = redis.call('PTTL', lock) - after
if holder == '-' or remaining <= 0 then
  remaining = holder == '-' and 0 or math.max(remaining + delay, 0)
  holder, note = '', ''
end
local entries = max > 0 and redis.call('LRANGE', queue, 0, max - 1) or {}
return {holder ~= '' and 1 or 0, fence_was, holder, remaining, note, redis.call('LLEN', queue), entries}
