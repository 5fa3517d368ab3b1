--- Cancel removes jobs from a queue, and marks those that a worker has.
---
--- A scheduled or dead job is removed. A ready job loses its body now, and a take drops its entry
--- when it reaches it, so the script searches no list. A leased job gets a mark: the next extend
--- reports it, and the job is deleted when its lease ends in any way. The script publishes the id
--- of a leased job to the channel with the name of the key leases, so that its worker extends now.
--- A job whose state is not asked for stays as it is. For each id the script returns one verdict,
--- in order.
---
--- Long because a job is in one of four states, each with its own end.
---
---@contract dup-only  an error half-way leaves a job cancelled, or where it was
---@retry    safe  the same receipt gives the same verdicts again, for a minute
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job, b before the number of
---          a dead job that has an entry in ready
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes, dead_limits
---@key      options    hash  id to the options of a job, which push.lua wrote
---@key      finished   zset  ids of finished jobs, scored by that time in ms
---@key      receipt    string  the verdicts of this call, kept for a repeat
---@arg      only  string  the verdicts of the states that are asked for, such as 12 for scheduled and ready
---@arg      known  ms  min=60000  how long an id that its caller chose is known after its end
---@args     id  string  max=200
---@allow    V002 failures: a job that is left where it was has its count anew
---@allow    W002 a worker that gets no hint learns of the mark at its next extend
---@error    LAYOUT  the queue has a later layout
---@reply    int[]  the state before: 0 absent, 1 scheduled, 2 ready, 3 leased, 4 dead
---@cost     O(log n) for each job

local scheduled, bodies, leases, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, unique, expiry, control, options = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local finished, receipt, only, known, kept_at = KEYS[10], KEYS[11], ARGV[1], tonumber(ARGV[2]), nil
if #ARGV > 202 then
  error('id: at most 200')
end
--< part/known.lua

--< part/types.lua
redis.call('ZCARD', scheduled)
redis.call('ZCARD', leases)
redis.call('HLEN', options)
redis.call('ZCARD', finished)
--< part/now_ms.lua

local verdicts, g = {}, 0
--< part/kept_verdicts.lua

local function forget(id, entry)
  --< part/mark_time.lua
  redis.call('ZADD', finished, at, id)
  g = g + 1
  redis.call('HDEL', failures, id .. '\n')
  redis.call('HDEL', options, id)
  --< part/release_name.lua
  --< part/remove_body.lua
end

local function meant(verdict)
  verdicts[#verdicts + 1] = verdict
  return string.find(only, verdict, 1, true)
end

for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('ZSCORE', leases, id) then
    if meant(3) then
      redis.call('HSET', failures, id, 'x')
      -- A hint to the consumers: the one that has the job extends its lease now, and learns of the mark.
      redis.pcall('PUBLISH', leases, id)
    end
  elseif redis.call('ZSCORE', scheduled, id) then
    if meant(1) then
      forget(id)
      redis.call('ZREM', scheduled, id)
    end
  elseif redis.call('ZSCORE', dead, id) then
    if meant(4) then
      -- A job that was buried while ready may have its entry still.
      local entry = string.find(redis.call('HGET', failures, id) or '', '^[bx]')
      local weight = 0 - redis.call('HSTRLEN', bodies, id)
      --< part/dead_bytes.lua
      forget(id, entry)
      redis.call('ZREM', dead, id)
    end
  elseif redis.call('HEXISTS', bodies, id) == 1 and redis.call('HGET', failures, id) ~= 'x' then
    if meant(2) then
      forget(id, true)
    end
  else
    meant(0)
  end
end
if g > 0 then
  --< part/finished.lua
end
-- The receipt also says that nothing was found: a late copy of this call must not touch a job that has come since.
redis.call('SET', receipt, table.concat(verdicts), 'PX', 60000)
return verdicts
