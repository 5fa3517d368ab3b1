--- QueueNack gives leased jobs back: to be delivered again, at once or later, or to the dead set.
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
---@key      options    hash  id to the options of a job, which queue_push.lua wrote
---@key      finished   zset  ids of finished jobs, scored by that time in ms
---@args     job  (id string, fence int, delay int, counted bool, reason string, enqueued_at int, patience int)
---          max=200
---          delay: ms until it is ready again, or until it expires if that is earlier, below 0 for the dead set;
---          enqueued_at: in ms, as take returned it; patience: ms, 0 for a job that was not declined
---@error    LAYOUT  the queue has a later layout
---@reply    int[]  0 lost, 1 given back, 2 cancelled and deleted, 3 dead after its patience
---@cost     O(log n) for each job

local leases, ready, scheduled, bodies, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, unique, expiry, control, wake, receipt = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local options, finished = KEYS[12], KEYS[13]
if #ARGV > 1400 then
  error('job: at most 200')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->

--< part/queue_types.lua
-- A key of the wrong type stops the script here, while nothing is written, and so does a later
-- layout: it has a text in paused, and in limit, that no script of this one writes.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)
local paused = redis.call('HGET', control, 'paused')
if paused and paused ~= '1' then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
-->
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

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', leases, '')

local heads, entries = {}, {}
for i = 1, #ARGV, 7 do
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
    --< part/queue_declined.lua
    -- A job that was declined waits as long as it has been declined, a minute at most. After its patience it is dead.
    if patience > 0 and not over then
      since = math.min(since or now_ms, now_ms)
      local age = now_ms - since
      delay = age < patience and math.max(math.min(math.max(delay, math.min(age, 60000)), patience - age), 1) or -1
      verdicts[n] = delay < 0 and 3 or 1
      redis.call('HSET', failures, id .. '\n', string.format('declined since %.0f: ', since) .. reason)
    elseif since and counted ~= '1' then
      redis.call('HDEL', failures, id .. '\n') -- a worker has begun it
    end
    -->
    work = work or not over and delay >= 0
    if counted == '1' and not over then
      --< part/queue_failures.lua
      -- The failures of a job are the last digits of its count, nine at most: a foreign text must stop no other job.
      local failed = tonumber(string.match(string.sub(count or '', -9), '%d*$')) or 0
      -->
      -- The text of a failure is no time of a decline.
      redis.call('HSET', failures, id, failed + 1, id .. '\n', (string.gsub(reason, '^declined since %d', ' %0')))
    end
    if over then
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
      --< part/queue_forget.lua
      -- The job was cancelled while it was leased: it is over. The caller ends the lease, after this.
      g = g + 1
      redis.call('ZADD', finished, now_ms, id)
      redis.call('HDEL', options, id)
      redis.call('HDEL', bodies, id)
      redis.call('HDEL', failures, id, id .. '\n')
      -->
    elseif delay < 0 then
      -- The job is dead. What it weighs is counted, so that a trim need not read the bodies.
      redis.call('ZADD', dead, now_ms, id)
      local weight = redis.call('HSTRLEN', bodies, id)
      --< part/queue_dead_bytes.lua
      -- The size of the dead set changes by weight. A foreign text, to which Redis cannot add, stops no call: an
      -- audit mends it.
      local sum = redis.pcall('HINCRBY', control, 'dead_bytes', weight)
      if sum == 0 then
        redis.call('HDEL', control, 'dead_bytes')
      elseif type(sum) == 'table' and not string.find(sum.err, 'not an integer', 1, true)
          and not string.find(sum.err, 'overflow', 1, true) then
        error(sum)
      end
      -->
      --< part/queue_remember_name.lua
      -- A dead job gives up its unique name, unless a later job has taken it over, and remembers it: a
      -- requeue takes it again.
      local name = redis.call('HGET', unique, 'j:' .. id)
      if name and redis.call('HGET', unique, 'k:' .. name) == id then
        redis.call('ZREM', expiry, name)
        redis.call('HDEL', unique, 'k:' .. name)
      end
      -->
    elseif delay > 0 then
      local text = optioned and redis.call('HGET', options, id) or ''
      --< part/queue_due.lua
      -- The job is due after the delay, or when it expires, if that is earlier. No worker gets it then, but the take
      -- that deletes it frees its unique name and its place below the limit, and no drain waits for it.
      local expires = tonumber(string.match(text, '^%d+') or '0')
      local due = now_ms + 1 + delay -- now_ms is rounded down
      due = string.format('%.0f', expires > 0 and math.min(expires, due) or due)
      -->
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
  --< part/queue_finished.lua
  -- A mark stays for a minute: a push that is sent again finds it, and does not add its job a second
  -- time. Older ones go, a bounded number at a time.
  local old = redis.call('ZCOUNT', finished, '-inf', now_ms - 61000)
  if old > 0 then
    redis.call('ZREMRANGEBYRANK', finished, 0, math.min(old, 2 * g + 100) - 1)
  end
  redis.call('EXPIRE', finished, 62)
  -->
end
if given > 0 then
  redis.call('SET', receipt, table.concat(verdicts), 'PX', 60000)
end
if work then
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
return verdicts
