--- Stats counts the jobs of a queue by state.
---
---@readonly
---@retry  safe  it only reads
---@key    ready      list  entries enqueued_at_ms:id, oldest at the head
---@key    scheduled  zset  id, scored by due time in ms
---@key    leases     zset  id, scored by the end of its lease in us
---@key    dead       zset  id, scored by the time of its death in ms
---@key    control    hash  paused, limit, dead_bytes, dead_limits
---@error  LAYOUT  the queue has a later layout
---@reply  (ready int, scheduled int, leased int, dead int, now time.ms, oldest time.ms?,
---        next_due time.ms?, paused bool, limit int, dead_bytes int, lapsed int)  lapsed: leases that have ended and
---        were not taken back; they count as leased too
---@cost   O(log n)

local ready, scheduled, leases, dead, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--< part/now_us.lua
local now_ms = string.sub(now_us, 1, -4)

local entry = redis.call('LINDEX', ready, 0)
-- A time beyond the numbers of a reply would be one in the past.
local stamp = entry and tonumber(string.match(entry, '^%d+'))
local oldest = stamp and math.min(stamp, 2 ^ 53) or false
local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and math.min(tonumber(head[2]), 2 ^ 53) or false
--< part/layout.lua
local set = redis.call('HMGET', control, 'limit', 'dead_bytes')
local limit = tonumber(set[1] or 0)
if not limit then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
return {
  redis.call('LLEN', ready), redis.call('ZCARD', scheduled),
  redis.call('ZCARD', leases), redis.call('ZCARD', dead),
  tonumber(now_ms), oldest, next_due,
  paused and 1 or 0, limit, tonumber(set[2] or 0) or 0,
  redis.call('ZCOUNT', leases, '-inf', now_us),
}
