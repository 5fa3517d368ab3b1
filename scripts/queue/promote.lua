--- Promote moves the jobs that are due from scheduled to ready, earliest first.
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
local now_ms = string.sub(now_us, 1, -4)

local waiting = redis.call('ZCARD', wake) > 0
local due = redis.call('ZRANGE', scheduled, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, max)

-- The member does not exist; see take.lua.
redis.call('ZREM', scheduled, '')
if #due > 0 then
  --< part/promote.lua
end

-- A poller that was notified of ready jobs notifies a consumer.
if waiting then
  redis.call('ZREM', wake, waiter)
  if redis.call('LLEN', ready) > 0 or max == 0 and redis.call('ZCARD', scheduled) > 0 then
    --< part/wake_next.lua
  end
end
if waiter ~= '' and max > 0 then
  --< part/wait_for_work.lua
end

local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and math.min(tonumber(head[2]), 2 ^ 53) or false
return {#due, tonumber(now_us), next_due}
