--- QueueRequeue makes dead jobs ready again, as if they had never failed.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  what was made ready is not dead any more
---@key      dead      zset  id, scored by the time of its death in ms
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      control   hash  paused, limit, dead_bytes
---@arg      oldest    int  min=0 max=200  so many of those that died first, besides the ids
---@args     id  string  max=200
---@reply    int  the jobs made ready
---@cost     O(log n) for each job

local dead, ready, bodies, failures, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local oldest = tonumber(ARGV[1])

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('HLEN', control)
local ids = oldest > 0 and redis.call('ZRANGE', dead, 0, oldest - 1) or {}
for i = 2, #ARGV do
  local id = ARGV[i]
  ids[#ids + 1] = id
end

local moved = 0
for _, id in ipairs(ids) do
  if redis.call('ZSCORE', dead, id) then
    redis.call('RPUSH', ready, now .. ':' .. id)
    redis.call('HINCRBY', control, 'dead_bytes', 0 - redis.call('HSTRLEN', bodies, id))
    redis.call('HDEL', failures, id, id .. '\n')
    redis.call('ZREM', dead, id)
    moved = moved + 1
  end
end
return moved
