--- Push adds jobs to a queue, each ready at once or scheduled, all of them or none.
---
--- A job is a duplicate when the queue knows its id (ready, scheduled, leased or dead, or cancelled
--- with an entry that is not dropped yet), when a job of that id, which its caller chose, has ended
--- not longer ago than the id is known for, or when another job holds its unique key. A duplicate is
--- left out and reported with the id of the existing job. Every ready job has the same stamp from
--- the server's clock, its enqueued_at. When the new jobs would exceed the limit in control, none
--- is added.
---
--- Long because ids and names are looked up and the limit is checked before the first write.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    safe  the same receipt gives the first result again, for as long as it is kept
---@guard    guard.lua
---@key      ready      list    entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset    id, scored by due time in ms
---@key      bodies     hash    id to body
---@key      leases     zset    id, scored by the end of its lease in us
---@key      failures   hash    id to the number of its failed deliveries, x for a cancelled job
---@key      unique     hash    k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset    name of a unique key, scored by its end in ms
---@key      control    hash    paused, limit, dead_bytes, dead_limits
---@key      wake       zset    names of the waiting consumers, scored by the end of their wait in ms
---@key      receipt    string  the result, kept for a repeat of this call
---@key      options    hash    id to the options of a job, opaque to this script; see docs/layout.md
---@keys     finished   zset    max=1  for ids that the callers chose: ids of finished jobs, scored by the time at which
---          a minute of theirs is left
---@arg      keep       ms  min=1  how long the receipt is kept
---@arg      fresh      bool  every id was made for this call, so none is looked up, and finished is not needed
---@arg      digest     string  what the jobs are, without spaces; empty for a receipt that no other call can name
---@args     job        (id string, due int, body bytes, extra string)  max=1000  due: 0 at once,
---          above 0 Unix ms, below 0 so many ms from now; extra: empty, or ms:bytes:name of a unique
---          key, 0 ms for as long as the job is there, 0 bytes for none, and then the options
---@error    LAYOUT  the queue has a later layout
---@error    REUSED  the receipt belongs to jobs of another digest
---@reply    (ready int, scheduled int, now time.ms, full bool, duplicates (position int, id string)[])
---@cost     O(log n) for each scheduled job, O(1) for each ready one
---@allow    W002 an undo goes as far as it can

local ready, scheduled, bodies, leases, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, expiry, control, wake, receipt, options = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local finished, keep, fresh, digest = KEYS[12], ARGV[1], ARGV[2], ARGV[3]
if #KEYS > 12 or fresh ~= '1' and not finished then
  error('finished: at most 1, and one for ids that the callers chose')
end

--< part/now_ms.lua
local limit = redis.call('HGET', control, 'limit')
if limit and not tonumber(limit) then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
local waiting = redis.call('ZCARD', wake) > 0

if #ARGV > 4003 then
  error('job: at most 1000')
end
--< part/push_keep.lua

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first and first ~= '' then
  local r, s, at, was, list = string.match(first, '^(%d+) (%d+) (%d+) (%S*) (.*)$')
  --< part/push_reused.lua
  --< part/receipt_read.lua
  return {tonumber(r), tonumber(s), tonumber(at), 0, rows}
end

local now, length = tonumber(now_ms), redis.call('LLEN', ready)
limit = tonumber(limit or 0)
local seen, held, lapsed, duplicates, dup = {}, {}, {}, {}, 0
local fields, entries, dues, names, ends, extras = {}, {}, {}, {}, {}, {}
local f, e, d, u, x, o, soonest = 0, 0, 0, 0, 0, 0, nil
for i = 4, #ARGV, 4 do
  local id, due, body, extra = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local position = (i - 4) / 4
  --< part/push_sort.lua
end
local later = math.floor(d / 2)

if limit > 0 then
  local there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases)
  if there + e + later > limit then
    return {0, 0, now, 1, {}}
  end
end

--< part/push_soonest.lua

--< part/push_write.lua
--< part/push_lists.lua
local receipted = {e, ' ', later, ' ', now_ms, ' ', digest, ' '}
--< part/receipt_write.lua
if failure then
  --< part/push_undo.lua
  error({err = failure})
end

if waiting then
  --< part/wake_next.lua
end
return {e, later, now, 0, duplicates}
