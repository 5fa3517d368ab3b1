--- QueueRequeue makes dead jobs ready again, as if they had never failed.
---
--- It names them: a call for the oldest would, when it is repeated, move the next ones.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  what was made ready is not dead any more
---@guard    guard.lua
---@key      dead      zset  id, scored by the time of its death in ms
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      control   hash  paused, limit, dead_bytes
---@key      wake      zset  channels of the waiting consumers, scored by the end of their wait in ms
---@args     id  string  max=200
---@reply    int  the jobs made ready
---@cost     O(log n) for each job

local dead, ready, bodies, failures, control, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
if #ARGV > 200 then
  error('id: at most 200')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('HLEN', control)
redis.call('ZCARD', wake)

local moved = 0
for i = 1, #ARGV do
  local id = ARGV[i]
  if redis.call('ZSCORE', dead, id) then
    redis.call('RPUSH', ready, now_ms .. ':' .. id)
    redis.call('HINCRBY', control, 'dead_bytes', 0 - redis.call('HSTRLEN', bodies, id))
    redis.call('HDEL', failures, id, id .. '\n')
    redis.call('ZREM', dead, id)
    moved = moved + 1
  end
end
if moved > 0 then
  --< part/queue_wake_next.lua
  -- Notify the consumer that has waited longest. An entry whose wait is over is removed, and a
  -- channel without a subscriber was that of a dead process: the next one has its turn. This
  -- is only a hint: where the user may not run one of the commands, all else is as before.
  local over = redis.pcall('ZREMRANGEBYSCORE', wake, '-inf', '(' .. now_ms)
  for _ = 1, type(over) == 'number' and 64 or 0 do
    local first = redis.pcall('ZPOPMIN', wake)
    if first.err or not first[1] or redis.pcall('PUBLISH', first[1], '') ~= 0 then
      break
    end
  end
  -->
end
return moved
