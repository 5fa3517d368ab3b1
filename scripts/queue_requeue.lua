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
---@key      wake      zset  channels of those who wait, scored by the end of their wait in ms
---@args     id  string  max=200
---@reply    int  the jobs made ready
---@cost     O(log n) for each job

local dead, ready, bodies, failures, control, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('HLEN', control)
redis.call('ZCARD', wake)

-- rouse tells the one that has waited longest. A channel without a receiver
-- belonged to a process that is gone. Only a hint: that it may not be allowed
-- changes nothing.
local function rouse()
  for _ = 1, 8 do
    local waiter = redis.pcall('ZPOPMIN', wake)
    if waiter.err or not waiter[1] then
      return
    end
    local heard = redis.pcall('PUBLISH', waiter[1], '')
    if type(heard) == 'table' and heard.err or heard ~= 0 then
      return
    end
  end
end

local moved = 0
for i = 1, #ARGV do
  local id = ARGV[i]
  if redis.call('ZSCORE', dead, id) then
    redis.call('RPUSH', ready, now .. ':' .. id)
    redis.call('HINCRBY', control, 'dead_bytes', 0 - redis.call('HSTRLEN', bodies, id))
    redis.call('HDEL', failures, id, id .. '\n')
    redis.call('ZREM', dead, id)
    moved = moved + 1
  end
end
if moved > 0 then
  rouse()
end
return moved
