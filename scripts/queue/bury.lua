--- Bury moves jobs that no worker has to the dead set, with a reason.
---
--- A scheduled job leaves its set. A ready job gets a mark before its count, and a take drops its
--- entry when it reaches it, so the script searches no list. A leased job stays with its worker. A
--- job whose state is not asked for stays as it is. No failure is counted. Death releases the
--- unique key. For each id the script returns one verdict, in order.
---
---@contract dup-only  an error half-way can deliver a job that is dead, never lose one
---@retry    safe  the same receipt gives the same verdicts again, for a minute
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job, b before the number of
---          a dead job that has an entry in ready; id and a line feed to the last reason
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes, dead_limits
---@key      receipt    string  the verdicts of this call, kept for a repeat
---@arg      only    string  the verdicts of the states that are asked for: 12 for scheduled and ready
---@arg      reason  string  kept with each job, the first KiB
---@args     id  string  max=200
---@allow    V002 control: dead_bytes can count a job twice, until an audit repairs it
---@error    LAYOUT  the queue has a later layout
---@reply    int[]  the state before: 0 absent, 1 scheduled, 2 ready, 3 leased, 4 dead
---@cost     O(log n) for each job

local scheduled, bodies, leases, failures, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, expiry, control, receipt = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
if #ARGV > 202 then
  error('id: at most 200')
end
local only, reason = ARGV[1], string.sub(ARGV[2], 1, 1024)

--< part/types.lua
redis.call('ZCARD', scheduled)
redis.call('ZCARD', leases)
--< part/now_ms.lua

local verdicts = {}
--< part/kept_verdicts.lua

for i = 3, #ARGV do
  local id = ARGV[i]
  local count = redis.call('HGET', failures, id) or '0'
  local due = redis.call('ZSCORE', scheduled, id)
  local verdict = 0
  if redis.call('ZSCORE', leases, id) then
    verdict = 3
  elseif redis.call('ZSCORE', dead, id) then
    verdict = 4
    redis.call('ZREM', scheduled, id) -- an error half-way may have left it there
  elseif count ~= 'x' and redis.call('HEXISTS', bodies, id) == 1 then
    verdict = due and 1 or 2
  end
  verdicts[i - 2] = verdict
  if (verdict == 1 or verdict == 2) and string.find(only, verdict, 1, true) then
    if not due then
      redis.call('HSET', failures, id, 'b' .. string.match(count, '%d*$'))
    end
    redis.call('HSET', failures, id .. '\n', reason)
    --< part/remember_name.lua
    -- The job is dead from here on, and the mark counts.
    local weight = redis.call('HSTRLEN', bodies, id)
    --< part/dead_bytes.lua
    redis.call('ZADD', dead, now_ms, id)
    redis.call('ZREM', scheduled, id)
  end
end
-- The receipt also says that nothing was moved: a late copy of this call must not touch a job that has come since.
redis.call('SET', receipt, table.concat(verdicts), 'PX', 60000)
return verdicts
