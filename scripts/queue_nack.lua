--- QueueNack gives leased jobs back: to be delivered again, at once or later, or to the dead set.
---
--- Each counts one more failed delivery. For each job one verdict, in order:
--- whether it was still leased under this fence.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  a job already given back is not leased under this fence
---@key      leases     zset  id, scored by the end of its lease in ms
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      failures   hash  id to the number of its failed deliveries
---@key      dead       zset  id, scored by the time of its death in ms
---@args     job  (id string, fence int, delay int)  max=1000  delay: ms until it is ready again, below 0 for the dead set
---@reply    int[]  0 lost, 1 given back
---@cost     O(log n) for each job

local leases, ready, scheduled, failures, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('ZCARD', scheduled)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', leases, '')

local verdicts, n = {}, 0
for i = 1, #ARGV, 3 do
  local id, fence, delay = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local score = redis.call('ZSCORE', leases, id)
  n = n + 1
  verdicts[n] = 0
  if score and tonumber(score) == fence then
    verdicts[n] = 1
    redis.call('HINCRBY', failures, id, 1)
    if delay < 0 then
      redis.call('ZADD', dead, now, id)
    elseif delay > 0 then
      redis.call('ZADD', scheduled, string.format('%.0f', now + delay), id)
    else
      redis.call('RPUSH', ready, now .. ':' .. id)
    end
    redis.call('ZREM', leases, id)
  end
end
return verdicts
