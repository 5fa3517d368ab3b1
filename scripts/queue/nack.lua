--- Nack gives leased jobs back: to be delivered again, at once or later, or to the dead set.
---
--- A job that is counted has failed once more, and its reason is stored. A job that is not counted
--- was only interrupted or postponed: without a delay it is at the head of ready again, with its
--- time. Death releases the unique key. A job that was cancelled under its lease is deleted,
--- whatever is asked, and so is a job without a body. For each job the script returns one verdict,
--- in order: whether it was still leased under this fence.
---
--- A job with a patience was declined: its worker cannot begin it. The time of the first time in a
--- row stands before its reason, and any other call ends the row. The delay is as long as that is
--- ago, a minute at most, and after the patience the job is dead.
---
--- Long because a job has three ends: ready, scheduled, dead.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@allow    V002 receipt: a repeat that finds no lease has nothing to write down
---@retry    safe  the same receipt gives the same verdicts again, for a minute
---@guard    guard.lua
---@key      leases     zset  id, scored by the end of its lease in us
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      failures   hash  id to the number of its failed deliveries, id and a line feed to the last reason,
---          "declined since ", that time in ms and a colon before one that was declined
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes, dead_limits
---@key      wake       zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      receipt    string  the verdicts of this call, kept for a repeat
---@key      options    hash  id to the options of a job, which push.lua wrote
---@key      finished   zset  ids of finished jobs, scored by that time in ms
---@arg      known  ms  min=60000  how long an id that its caller chose is known after its end
---@args     job  (id string, fence int, delay int, counted bool, reason string, enqueued_at int, patience int)
---          max=200
---          delay: ms until it is ready again, or until it expires if that is earlier, below 0 for the dead set;
---          enqueued_at: in ms, as take returned it; patience: ms, 0 for a job that was not declined
---@error    LAYOUT  the queue has a later layout
---@reply    int[]  0 lost, 1 given back, 2 cancelled and deleted, 3 dead after its patience
---@cost     O(log n) for each job

local leases, ready, scheduled, bodies, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, unique, expiry, control, wake, receipt = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local options, finished, known, kept_at = KEYS[12], KEYS[13], tonumber(ARGV[1]), nil
if #ARGV > 1401 then
  error('job: at most 200')
end
--< part/known.lua

--< part/now_ms.lua

--< part/types.lua
redis.call('LLEN', ready)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', wake)
local optioned = redis.call('HLEN', options) > 0
redis.call('ZCARD', finished)
local kept, verdicts, n, work = redis.call('GET', receipt), {}, 0, false
local given, g = 0, 0
if kept then
  for verdict in string.gmatch(kept, '%d') do
    n = n + 1
    verdicts[n] = tonumber(verdict)
  end
  return verdicts
end

-- The member does not exist; see take.lua.
redis.call('ZREM', leases, '')

local heads, entries = {}, {}
for i = 2, #ARGV, 7 do
  local id, fence, delay = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local counted, reason, patience = ARGV[i + 3], ARGV[i + 4], tonumber(ARGV[i + 6])
  local score = redis.call('ZSCORE', leases, id)
  n = n + 1
  verdicts[n] = 0
  if score and tonumber(score) == fence and not entries[id] then
    given = given + 1
    local was = redis.call('HMGET', failures, id, id .. '\n')
    local count = was[1]
    local since = tonumber(string.match(was[2] or '', '^declined since (%d+): ') or '')
    local over = count == 'x' or redis.call('HEXISTS', bodies, id) == 0
    verdicts[n] = over and 2 or 1
    --< part/declined.lua
    work = work or not over and delay >= 0
    if counted == '1' and not over then
      --< part/failures.lua
      -- The text of a failure is no time of a decline.
      redis.call('HSET', failures, id, failed + 1, id .. '\n', (string.gsub(reason, '^declined since %d', ' %0')))
    end
    if over then
      --< part/release_name.lua
      --< part/forget.lua
    elseif delay < 0 then
      -- The job is dead. What it weighs is counted, so that a trim need not read the bodies.
      redis.call('ZADD', dead, now_ms, id)
      local weight = redis.call('HSTRLEN', bodies, id)
      --< part/dead_bytes.lua
      --< part/remember_name.lua
    elseif delay > 0 then
      local text = optioned and redis.call('HGET', options, id) or ''
      --< part/due.lua
      redis.call('ZADD', scheduled, due, id)
    elseif counted == '1' then
      redis.call('RPUSH', ready, now_ms .. ':' .. id)
    else
      heads[#heads + 1] = id
      entries[id] = (string.match(ARGV[i + 5], '^%d+$') or now_ms) .. ':' .. id -- a take drops all others
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
if g > 0 then
  --< part/finished.lua
end
if given > 0 then
  redis.call('SET', receipt, table.concat(verdicts), 'PX', 60000)
end
if work then
  --< part/wake_next.lua
end
return verdicts
