--- QueueNack gives leased jobs back: to be delivered again, at once or later, or to the dead set.
---
--- A job that is counted has failed once more; its reason is kept with it. One that
--- is not counted was only interrupted or put off: without a delay it is at the head
--- of ready again, with its time. Death releases the unique key.
--- For each job one verdict, in order: whether it was still leased under this fence.
---
--- Long because a job has three ends: ready, scheduled, dead.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  a job already given back is not leased under this fence
---@guard    guard.lua
---@key      leases     zset  id, scored by the end of its lease in us
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      failures   hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes
---@key      wake       zset  channels of the waiting consumers, scored by the end of their wait in ms
---@args     job  (id string, fence int, delay int, counted bool, reason string, enqueued_at int)  max=200
---          delay: ms until it is ready again, below 0 for the dead set; enqueued_at: in ms, as take returned it
---@reply    int[]  0 lost, 1 given back
---@cost     O(log n) for each job

local leases, ready, scheduled, bodies, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, unique, expiry, control, wake = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
if #ARGV > 1200 then
  error('job: at most 200')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->

--< part/queue_types.lua
-- A key of the wrong type stops the script here, while nothing is written.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)
redis.call('HLEN', control)
-->
redis.call('LLEN', ready)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', wake)

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', leases, '')

local verdicts, n, work = {}, 0, false
local heads, entries = {}, {}
for i = 1, #ARGV, 6 do
  local id, fence, delay = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local counted, reason = ARGV[i + 3], ARGV[i + 4]
  local score = redis.call('ZSCORE', leases, id)
  n = n + 1
  verdicts[n] = 0
  if score and tonumber(score) == fence and not entries[id] then
    verdicts[n] = 1
    work = work or delay >= 0
    if counted == '1' then
      redis.call('HINCRBY', failures, id, 1)
      redis.call('HSET', failures, id .. '\n', reason)
    end
    if delay < 0 then
      --< part/queue_bury.lua
      -- The job is dead. What it weighs is counted, so that a trim need not read the bodies.
      redis.call('ZADD', dead, now_ms, id)
      redis.call('HINCRBY', control, 'dead_bytes', redis.call('HSTRLEN', bodies, id))
      -->
      --< part/queue_release_name.lua
      -- The job gives up its unique name, unless a later job has taken the name over.
      local name = redis.call('HGET', unique, 'j:' .. id)
      if name then
        if redis.call('HGET', unique, 'k:' .. name) == id then
          redis.call('ZREM', expiry, name)
          redis.call('HDEL', unique, 'k:' .. name)
        end
        redis.call('HDEL', unique, 'j:' .. id)
      end
      -->
    elseif delay > 0 then
      redis.call('ZADD', scheduled, string.format('%.0f', now_ms + delay), id)
    elseif counted == '1' then
      redis.call('RPUSH', ready, now_ms .. ':' .. id)
    else
      heads[#heads + 1] = id
      entries[id] = ARGV[i + 5] .. ':' .. id
    end
    if not entries[id] then
      redis.call('ZREM', leases, id)
    end
  end
end
-- The last goes to the head first, so that they keep their order.
for i = #heads, 1, -1 do
  redis.call('LPUSH', ready, entries[heads[i]])
  redis.call('ZREM', leases, heads[i])
end
if work then
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
return verdicts
