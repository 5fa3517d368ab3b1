--- QueueTake leases the oldest ready jobs to a worker.
---
--- What is due moves to ready first, so scheduled jobs run without a poller. Each
--- job taken is leased until the time that is also its fence: ack, nack and extend
--- name it, and one that another lease has replaced is refused. An entry without a
--- body, left by a cancelled job, is dropped and counted.
---
--- Long because jobs that are due, cancelled or foreign are met in one pass over ready.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  jobs of a lost reply come back when their lease ends
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job
---@key      control    hash  paused, limit, dead_bytes
---@key      wake       zset  channels of the waiting consumers, scored by the end of their wait in ms
---@arg      lease  ms   min=1  how long the jobs are leased
---@arg      max    int  min=1 max=300  the most jobs to take
---@arg      bytes  int  min=1  stop before the bodies exceed this; one job is always taken
---@arg      waiter  string  channel to notify when there may be work, if there is none now; empty for none
---@arg      wait    ms  min=0  how long it listens
---@reply    (now int, fence int, paused bool, jobs (id string, body bytes, enqueued_at time.ms,
---          failures int)[], dropped int, next_due time.ms?, next_lapse int?)  now, fence,
---          next_lapse: in us; fence: the end of the leases
---@cost     O(log n) for each job taken or promoted

local ready, scheduled, bodies, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local failures, control, wake = KEYS[5], KEYS[6], KEYS[7]
local lease, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local waiter, wait = ARGV[4], tonumber(ARGV[5])
if not (max and max >= 1 and max <= 300) then
  error('max must be 1 to 300')
end
if not (bytes and bytes >= 1) then
  error('bytes must be 1 or more')
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
local now_ms = string.sub(now_us, 1, -4)
local fence = string.format('%.0f', now_us + lease * 1000)

-- A key of the wrong type stops the script here, while nothing is written.
local waiting = redis.call('ZCARD', wake) > 0
redis.call('HLEN', bodies)
local failed = redis.call('HLEN', failures) > 0
local due = redis.call('ZRANGE', scheduled, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, max)
local lapse = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
local next_lapse = lapse[2] and tonumber(lapse[2]) or false

-- The member does not exist. A script whose first write frees memory may go on
-- to use some: so consumers can drain a server that is over its limit.
redis.call('ZREM', leases, '')

local paused = redis.call('HGET', control, 'paused')
if #due > 0 and not paused then
  --< part/queue_promote.lua
  -- What is due goes to the end of ready, earliest first.
  local entries, stamp = {}, now_ms .. ':'
  for i, id in ipairs(due) do
    entries[i] = stamp .. id
  end
  redis.call('RPUSH', ready, unpack(entries, 1, #entries))
  redis.call('ZREMRANGEBYRANK', scheduled, 0, #due - 1)
  -->
end

local jobs, grants = {}, {}
local j, g, read, size, dropped = 0, 0, 0, 0, 0
for _ = 1, paused and 0 or 8 do -- rounds, when all entries of one were dropped
  local entries = redis.call('LRANGE', ready, read, read + max - 1)
  if #entries == 0 then
    break
  end
  local ids = {}
  for i = 1, #entries do
    local entry = entries[i]
    -- A foreign entry names no job and is dropped: it must not block the head.
    ids[i] = string.sub(entry, (string.find(entry, ':', 1, true) or #entry) + 1)
  end
  local found = redis.call('HMGET', bodies, unpack(ids, 1, #ids))
  local counts = failed and redis.call('HMGET', failures, unpack(ids, 1, #ids)) or {}
  for i = 1, #ids do
    --< part/queue_take_job.lua
    local id, body, count = ids[i], found[i], counts[i]
    if count == 'x' then
      -- A cancelled job kept its id until here, so that no other could take the
      -- entry for its own.
      redis.call('HDEL', bodies, id)
      redis.call('HDEL', failures, id)
      body = false
    end
    if body then
      size = size + #body
      if j > 0 and size > bytes then
        break
      end
      local stamp = string.sub(entries[i], 1, #entries[i] - #id - 1)
      jobs[j + 1], jobs[j + 2], jobs[j + 3], jobs[j + 4] = id, body, tonumber(stamp), count and tonumber(count) or 0
      grants[g + 1], grants[g + 2] = fence, id
      j, g = j + 4, g + 2
    else
      dropped = dropped + 1
    end
    -->
    read = read + 1
  end
  if j > 0 then
    break
  end
end

for i = 1, g, 1000 do
  redis.call('ZADD', leases, unpack(grants, i, math.min(i + 999, g)))
end
if read > 0 then
  redis.call('LTRIM', ready, read, -1)
end

if j == 0 and dropped == 0 then
  if waiter ~= '' then
    --< part/queue_wait_for_work.lua
    -- The waiter leaves its channel in the same step as the check that found nothing: no work
    -- comes in between unnoticed.
    redis.call('ZADD', wake, string.format('%.0f', now_ms + wait), waiter)
    -- Waiters that wait for longer keep the key for as long as they need it.
    local stay = string.format('%.0f', wait + 1000)
    if redis.call('PEXPIRE', wake, stay, 'GT') == 0 then
      redis.call('PEXPIRE', wake, stay, 'NX')
    end
    -->
  end
elseif waiting then
  redis.call('ZREM', wake, waiter)
  -- Who takes and leaves work behind wakes the next one, and so on.
  if redis.call('LLEN', ready) > 0 then
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
end

local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and tonumber(head[2]) or false
return {tonumber(now_us), tonumber(fence), paused and 1 or 0, jobs, dropped, next_due, next_lapse}
