--- QueueCancel takes jobs out of a queue that no worker has.
---
--- A scheduled or dead job is removed. A ready job loses its body now and its entry
--- when a worker comes to it: no list is searched. A leased job is left alone. For
--- each id one verdict, in order.
---
---@contract dup-only  an error half-way leaves a job cancelled, or where it was
---@retry    safe  a job already cancelled is absent
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes
---@args     id  string  max=200
---@reply    int[]  0 absent, 1 scheduled, 2 ready, 3 leased and left, 4 dead
---@cost     O(log n) for each job

local scheduled, bodies, leases, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, unique, expiry, control = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
if #ARGV > 200 then
  error('id: at most 200')
end

--< part/queue_types.lua
-- A key of the wrong type stops the script here, while nothing is written.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)
redis.call('HLEN', control)
-->
redis.call('ZCARD', scheduled)
redis.call('ZCARD', leases)

local function forget(id)
  redis.call('HDEL', failures, id, id .. '\n')
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

local verdicts, n = {}, 0
for i = 1, #ARGV do
  local id = ARGV[i]
  local verdict = 0
  if redis.call('ZSCORE', leases, id) then
    verdict = 3
  elseif redis.call('ZSCORE', scheduled, id) then
    verdict = 1
    forget(id)
    redis.call('HDEL', bodies, id)
    redis.call('ZREM', scheduled, id)
  elseif redis.call('ZSCORE', dead, id) then
    verdict = 4
    forget(id)
    redis.call('HINCRBY', control, 'dead_bytes', 0 - redis.call('HSTRLEN', bodies, id))
    redis.call('HDEL', bodies, id)
    redis.call('ZREM', dead, id)
  elseif redis.call('HEXISTS', bodies, id) == 1 and redis.call('HGET', failures, id) ~= 'x' then
    verdict = 2
    forget(id)
    redis.call('HSET', failures, id, 'x')
    redis.call('HSET', bodies, id, '')
  end
  n = n + 1
  verdicts[n] = verdict
end
return verdicts
