--- DelayedPromote moves the jobs that are due from scheduled to ready, earliest first.
---
--- A job is due when the server's clock has reached its time, never before. Several pollers may
--- run: each job moves once. For a waiter that leaves, the script moves none, and another waiter
--- looks for work in its place: the one that leaves may have been notified, or may be the only one
--- that knows of the next job.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    resume  what has moved is not scheduled any more; a repeat moves the next jobs
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@allow    V002 wake: a consumer that is not notified looks again after a while
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      wake       zset  names of the waiting consumers, scored by the end of their wait in ms
---@arg      max     int  min=0 max=1000  the most jobs to move; 0: the waiter leaves
---@arg      waiter  string  name to notify when a job may be due earlier than next_due; empty for none
---@arg      wait    ms  min=0  how long it listens
---@reply    (moved int, now int, next_due time.ms?)  now: in us
---@cost     O(log n + k) for k jobs moved

local scheduled, ready, wake = KEYS[1], KEYS[2], KEYS[3]
local max, waiter, wait = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not (max and max >= 0 and max <= 1000 and wait and wait >= 0) then
  error('max must be 0 to 1000, and wait 0 or more')
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

local waiting = redis.call('ZCARD', wake) > 0
local due = redis.call('ZRANGE', scheduled, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, max)

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', scheduled, '')
if #due > 0 then
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

-- A poller that was notified of ready jobs notifies a consumer.
if waiting then
  redis.call('ZREM', wake, waiter)
  if redis.call('LLEN', ready) > 0 or max == 0 and redis.call('ZCARD', scheduled) > 0 then
    --< part/queue_wake_next.lua
    -- Notify the consumer that has waited longest. An entry whose wait is over is removed, and a
    -- name whose channel has no subscriber was that of a dead process: the next one has its turn. The
    -- channel begins with the key: no data chooses where the caller publishes. This is only a
    -- hint: where the user may not run one of the commands, all else is as before.
    local over = redis.pcall('ZREMRANGEBYSCORE', wake, '-inf', '(' .. now_ms)
    for _ = 1, type(over) == 'number' and 64 or 0 do
      local first = redis.pcall('ZPOPMIN', wake)
      if first.err or not first[1] or redis.pcall('PUBLISH', wake .. ':' .. first[1], '') ~= 0 then
        break
      end
    end
    -->
  end
end
if waiter ~= '' and max > 0 then
  --< part/queue_wait_for_work.lua
  -- The waiter leaves its name in the same step as the check that found nothing: no work
  -- comes in between unnoticed.
  redis.call('ZADD', wake, string.format('%.0f', now_ms + wait), waiter)
  -- Waiters that wait for longer keep the key for as long as they need it.
  local stay = string.format('%.0f', wait + 1000)
  if redis.call('PEXPIRE', wake, stay, 'GT') == 0 then
    redis.call('PEXPIRE', wake, stay, 'NX')
  end
  -->
end

local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and math.min(tonumber(head[2]), 2 ^ 53) or false
return {#due, tonumber(now_us), next_due}
