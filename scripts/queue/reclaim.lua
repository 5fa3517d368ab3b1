--- Reclaim takes back jobs whose lease has ended, because their worker died or stalled.
---
--- Each job counts one more failed delivery. It goes to the head of ready, because it has waited
--- longest, or to the dead set once it has failed max_failures times. A job that was cancelled
--- under its lease is deleted.
---
--- Long because a job has two ends, each with its own limit of failures.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    resume  what was taken back has no lease any more; a repeat takes back the next jobs
---@key      leases    zset  id, scored by the end of its lease in us
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      dead      zset  id, scored by the time of its death in ms
---@key      unique    hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry    zset  name of a unique key, scored by its end in ms
---@key      control   hash  paused, limit, dead_bytes, dead_limits
---@key      wake      zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      options   hash  id to the options of a job, which push.lua wrote
---@key      scheduled zset  id, scored by due time in ms
---@key      finished  zset  ids of finished jobs, scored by that time in ms
---@arg      max           int  min=1 max=1000  the most jobs to take back
---@arg      max_failures  int  min=0  0 for no limit; a job's own limit comes before it
---@arg      backoff       ms  min=0  delay of a job whose lease ended twice in a row, doubled each time; it is due
---          when it expires, if that is earlier
---@arg      known         ms  min=60000  how long an id that its caller chose is known after its end
---@allow    V002 failures: a count that is missing is one delivery more
---@error    LAYOUT  the queue has a later layout
---@reply    (returned int, cancelled int, now int, next_lapse int?, deaths (id string, failures int,
---          options string)[])  now, next_lapse: in us; options: empty for a job that has none
---@cost     O(log n) for each job taken back

local leases, ready, bodies, failures, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, expiry, control, wake, options = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local finished, known, kept_at = KEYS[12], tonumber(ARGV[4]), nil
local scheduled, max, max_failures, backoff = KEYS[11], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end
if not (max_failures and max_failures >= 0 and backoff and backoff >= 0) then
  error('max_failures and backoff must be 0 or more')
end
--< part/known.lua

--< part/now_us.lua
local now_ms = string.sub(now_us, 1, -4)

--< part/types.lua
redis.call('LLEN', ready)
redis.call('ZCARD', wake)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', finished)
local optioned = redis.call('HLEN', options) > 0
local ids = redis.call('ZRANGE', leases, '-inf', now_us, 'BYSCORE', 'LIMIT', 0, max)

-- The member does not exist; see take.lua.
redis.call('ZREM', leases, '')

-- From the last to the first: the head of ready gets them in this order.
local entries, graves, counts, later, g = {}, {}, {}, {}, 0
for i = #ids, 1, -1 do
  local id = ids[i]
  local was = redis.call('HMGET', failures, id, id .. '\n')
  if was[1] == 'x' then
    --< part/release_name.lua
    --< part/forget.lua
  elseif redis.call('HEXISTS', bodies, id) == 1 then
    local count = was[1]
    --< part/failures.lua
    failed = failed + 1
    local n = #counts
    counts[n + 1], counts[n + 2], counts[n + 3], counts[n + 4] = id, failed, id .. '\n', 'lease over'
    local text = optioned and redis.call('HGET', options, id) or ''
    local own = string.match(text, '^%d+:(-?%d+):')
    local most = own and own ~= '0' and tonumber(own) or max_failures
    if most > 0 and failed >= most then
      graves[#graves + 1], graves[#graves + 2], graves[#graves + 3] = id, failed, text
    elseif failed > 1 and was[2] == 'lease over' and backoff > 0 then
      -- Its worker has died twice: the job may be the cause, and others come first.
      local delay = math.min(backoff * 2 ^ math.min(failed - 2, 20), 3600000)
      --< part/due.lua
      later[#later + 1], later[#later + 2] = due, id
    else
      entries[#entries + 1] = now_ms .. ':' .. id
    end
  end
end
for i = 1, #graves, 3 do
  local id = graves[i]
  -- The job is dead. What it weighs is counted, so that a trim need not read the bodies.
  redis.call('ZADD', dead, now_ms, id)
  local weight = redis.call('HSTRLEN', bodies, id)
  --< part/dead_bytes.lua
  --< part/remember_name.lua
end
for i = 1, #later, 1000 do
  redis.call('ZADD', scheduled, unpack(later, i, math.min(i + 999, #later)))
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
if g > 0 then
  --< part/finished.lua
end

if #entries > 0 or #later > 0 then
  --< part/wake_next.lua
end
local head = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
local next_lapse = head[2] and math.min(tonumber(head[2]), 2 ^ 53) or false
return {#entries + #later / 2, g, tonumber(now_us), next_lapse, graves}
