--- QueueTrim removes the oldest dead jobs, as many as pass a limit.
---
---@contract dup-only  an error half-way leaves some of them
---@retry    safe  it goes on where it stopped
---@guard    guard.lua
---@key      dead      zset  id, scored by the time of its death in ms
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      control   hash  paused, limit, dead_bytes
---@arg      keep      int  min=-1  the most jobs that stay, -1 for any number
---@arg      bytes     int  min=-1  the most bytes of bodies that stay, -1 for any number
---@arg      age       int  min=-1  ms after which a dead job goes, -1 for never
---@arg      max       int  min=1 max=1000  the most jobs to remove
---@reply    (removed int, left int, bytes int)  bytes: of the bodies that stay
---@cost     O(log n) for each job removed

local dead, bodies, failures, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keep, bytes, age, max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end
if not (keep and bytes and age and math.min(keep, bytes, age) >= -1) then
  error('keep, bytes and age must be -1 or more')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
local size = tonumber(redis.call('HGET', control, 'dead_bytes') or 0)
local left, removed = redis.call('ZCARD', dead), 0
local found = redis.call('ZRANGE', dead, 0, max - 1, 'WITHSCORES')

for i = 1, #found, 2 do
  local id, died = found[i], tonumber(found[i + 1])
  if not (keep >= 0 and left > keep or bytes >= 0 and size > bytes or age >= 0 and now - died > age) then
    break
  end
  local length = redis.call('HSTRLEN', bodies, id)
  redis.call('HINCRBY', control, 'dead_bytes', 0 - length)
  redis.call('HDEL', failures, id, id .. '\n')
  redis.call('HDEL', bodies, id)
  redis.call('ZREM', dead, id)
  size, left, removed = size - length, left - 1, removed + 1
end
return {removed, left, size}
