--- QueueReclaim takes jobs back whose lease has ended, because their worker died or stalled.
---
--- Each counts one more failed delivery. It goes to the head of ready, since it
--- has waited longest, or to the dead set once it has failed max_failures times.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  what was taken back has no lease any more
---@key      leases    zset  id, scored by the end of its lease in us
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      dead      zset  id, scored by the time of its death in ms
---@key      unique    hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry    zset  name of a unique key, scored by its end in ms
---@key      control   hash  paused, limit, dead_bytes
---@key      wake      zset  channels of the waiting consumers, scored by the end of their wait in ms
---@arg      max           int  min=1 max=1000  the most jobs to take back
---@arg      max_failures  int  min=0  0 for no limit
---@reply    (returned int, buried int, now int, next_lapse int?)  now, next_lapse: in us
---@cost     O(log n) for each job taken back

local leases, ready, bodies, failures, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, expiry, control, wake = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local max, max_failures = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (max and max >= 1 and max <= 1000 and max_failures and max_failures >= 0) then
  error('max must be 1 to 1000, and max_failures 0 or more')
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
redis.call('ZCARD', wake)
local ids = redis.call('ZRANGE', leases, '-inf', now_us, 'BYSCORE', 'LIMIT', 0, max)

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', leases, '')

-- From the last to the first: the head of ready gets them in this order.
local entries, graves, counts = {}, {}, {}
for i = #ids, 1, -1 do
  local id = ids[i]
  if redis.call('HEXISTS', bodies, id) == 1 then
    local count = tonumber(redis.call('HGET', failures, id) or 0) + 1
    local n = #counts
    counts[n + 1], counts[n + 2], counts[n + 3], counts[n + 4] = id, count, id .. '\n', 'lease over'
    if max_failures > 0 and count >= max_failures then
      graves[#graves + 1] = id
    else
      entries[#entries + 1] = now_ms .. ':' .. id
    end
  end
end
for _, id in ipairs(graves) do
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
end
if #entries > 0 then
  redis.call('LPUSH', ready, unpack(entries, 1, #entries))
end
if #ids > 0 then
  redis.call('ZREMRANGEBYRANK', leases, 0, #ids - 1)
  -- Last: a count that is missing means one delivery more, one too many a death too early.
  for i = 1, #counts, 1000 do
    redis.call('HSET', failures, unpack(counts, i, math.min(i + 999, #counts)))
  end
end

if #entries > 0 then
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
local head = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
local next_lapse = head[2] and tonumber(head[2]) or false
return {#entries, #graves, tonumber(now_us), next_lapse}
