--- Take leases the oldest ready jobs of a queue, or of several of one slot, to a worker.
---
--- 1. The script reads all keys of all queues. Then it goes through the queues in the order given,
---    and takes from a later one only when those before it have no job left.
--- 2. The jobs of calls without a reply go back.
--- 3. What is due moves to ready, so scheduled jobs run without a poller.
--- 4. Each job taken is leased. The end of the lease is also its fence: ack, nack and extend name
---    it, and a fence that another lease has replaced is refused. An entry without a body, which a
---    cancelled job left, is dropped and counted.
--- 5. If no queue has a job, the worker waits at all queues. Otherwise it waits at none, and the
---    jobs that it leaves behind notify the next worker.
---
--- The tokens of a taker grow. A copy of its last call does none of this: it returns the jobs that
--- this call leased, and counts the others as dropped. A copy of an earlier call returns none.
---
--- Long because jobs that are due, cancelled or foreign are met in one pass over ready.
---
---@contract dup-only  an error half-way can deliver a job twice, or one that was buried while ready, never lose one
---@retry    resume  the same token returns the jobs that it took, under the same lease, for a minute at least;
---          a smaller one than the last returns none
---@allow    V002 wake: a consumer that is not notified looks again after a while
---@allow    V002 leases: a job that an error delivers twice takes the place of another in its call
---@keys     queue  (ready list, scheduled zset, bodies hash, leases zset, failures hash, control hash, wake zset,
---          options hash, receipt string, dead zset)  max=16  ready: entries enqueued_at_ms:id, oldest at the
---          head; scheduled: id by due time in ms; bodies: id to body; leases: id by the end of its lease in us;
---          failures: id to the number of its failed deliveries, x for a cancelled job, b before the number of a
---          dead job that has an entry in ready; control: paused, limit, dead_bytes; wake: names of the waiting
---          consumers by the end of their wait in ms; options: id to the options of a job, which push.lua
---          wrote; receipt: the last call of this taker that took jobs here, or none anywhere: token, fence,
---          entries; dead: id by the time of its death in ms
---@arg      max    int  min=1 max=300  the most jobs to take
---@arg      bytes  int  min=1  stop before the bodies exceed this; one job is always taken
---@arg      waiter  string  name to notify when there may be work, if there is none now; empty for none
---@arg      wait    ms  min=0  how long it listens
---@arg      token   int  min=0  number of this call among those of the taker, greater than that of the last
---@arg      since   int  min=0  that of the first call since the last reply, this one where there is none
---@args     queue  (lease ms)  max=16  how long its jobs are leased
---@error    LAYOUT  a queue has a later layout
---@reply    (now int, states (fence int, paused bool, jobs int, dropped int, next_due time.ms?,
---          next_lapse int?)[], jobs (id string, body bytes, enqueued_at time.ms, failures int)[],
---          options (place int, text string)[])  now, fence, next_lapse: in us; fence: the end of the leases;
---          states: of the queues, in order, as are the jobs of each; options: of the jobs that have some, place:
---          among all jobs, from 0
---@cost     O(log n) for each job taken or promoted, O(1) for each queue

local max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local waiter, wait, token, since = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local number = tonumber(token)
if not (max and max >= 1 and max <= 300) then
  error('max must be 1 to 300')
end
if not (bytes and bytes >= 1 and wait and wait >= 0 and number and number >= 0 and since and since >= 0) then
  error('bytes must be 1 or more, and wait, token and since 0 or more')
end
if #KEYS > 160 or #ARGV > 22 then
  error('queue: at most 16')
end

--< part/now_us.lua
local now_ms = string.sub(now_us, 1, -4)

-- A key of the wrong type stops the script here, while nothing is written.
local states, named, newest = {}, {}, -1
for i = 1, #KEYS, 10 do
  local ready, scheduled, bodies, leases, failures = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
  local control, wake, options, receipt, dead = KEYS[i + 5], KEYS[i + 6], KEYS[i + 7], KEYS[i + 8], KEYS[i + 9]
  local lease = ARGV[(i + 69) / 10]
  if not (tonumber(lease) and tonumber(lease) >= 1) then
    error('lease must be 1 or more')
  end
  if named[scheduled] then -- what is due would be moved twice
    error('queue: each is named once')
  end
  named[scheduled] = true
  redis.call('LLEN', ready)
  redis.call('HLEN', bodies)
  redis.call('ZCARD', dead)
  --< part/layout.lua
  local taken = redis.call('GET', receipt)
  local last = taken and tonumber(string.match(taken, '^%d+')) or -1
  newest = math.max(newest, last)
  states[i] = {
    lease = lease, paused = paused, waiting = redis.call('ZCARD', wake) > 0,
    failed = redis.call('HLEN', failures) > 0, optioned = redis.call('HLEN', options) > 0,
    taken = taken, last = last, lapse = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2],
    due = redis.call('ZRANGE', scheduled, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, max),
  }
end

local jobs, extras, fresh, noted = {}, {}, newest < number, false
local j, size, total, room = 0, 0, 0, max
for i = 1, #KEYS, 10 do
  local ready, scheduled, bodies, leases, failures = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
  local options, receipt, dead, state = KEYS[i + 7], KEYS[i + 8], KEYS[i + 9], states[i]
  local due, taken, last, paused, lease = state.due, state.taken, state.last, state.paused, state.lease
  local fence = string.format('%.0f', now_us + lease * 1000)
  -- The member does not exist. A script whose first write frees memory may go on
  -- to use some: so consumers can drain a server that is over its limit.
  redis.call('ZREM', leases, '')
  local copied, gone = not fresh and {}, 0
  --< part/take_again.lua
  if fresh and #due > 0 and not paused then
    --< part/promote.lua
  end
  local grants, kept, g, read, dropped = {}, {}, 0, 0, gone
  for round = 1, copied and 1 or paused and 0 or 8 do -- more than one where entries were dropped
    --< part/take_round.lua
  end
  --< part/take_grant.lua
  state.taken, state.dropped, state.fence = g / 2, dropped, tonumber(fence)
  total = total + g / 2 + dropped
end
--< part/take_none.lua

local rows, r = {}, 0
for i = 1, #KEYS, 10 do
  local ready, scheduled, wake, state = KEYS[i], KEYS[i + 1], KEYS[i + 6], states[i]
  if fresh and total == 0 then
    if waiter ~= '' then
      --< part/wait_for_work.lua
    end
  elseif fresh and state.waiting then
    redis.call('ZREM', wake, waiter)
    -- Who takes and leaves work behind wakes the next one, and so on.
    if not state.paused and redis.call('LLEN', ready) > 0 then
      --< part/wake_next.lua
    end
  end
  local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
  rows[r + 1], rows[r + 2], rows[r + 3], rows[r + 4] = state.fence, state.paused and 1 or 0, state.taken, state.dropped
  rows[r + 5] = head and math.min(tonumber(head), 2 ^ 53) or false -- the reply has no later time
  rows[r + 6] = state.lapse and math.min(tonumber(state.lapse), 2 ^ 53) or false
  r = r + 6
end
return {tonumber(now_us), rows, jobs, extras}
