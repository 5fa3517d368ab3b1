--- PushMany adds jobs to several queues of one slot, all of them or none.
---
--- For each queue it does what push.lua does: each queue has its own ids, unique names and
--- limit. When the new jobs of one queue would exceed its limit, no queue gets any. There is one
--- receipt for the whole batch.
---
--- Long because all queues are checked before the first write, and undone after a failed one.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    safe  the same receipt gives the first result again, for as long as it is kept
---@guard    guard.lua
---@key      receipt  string  the result, kept for a repeat of this call
---@keys     queue  (ready list, scheduled zset, bodies hash, leases zset, failures hash,
---          unique hash, expiry zset, control hash, wake zset, options hash, finished zset)  max=64  the keys of each
---          queue, as in push.lua
---@arg      keep   ms  min=1  how long the receipt is kept
---@arg      fresh  bool  every id was made for this call, so none is looked up
---@arg      digest  string  what the jobs and their queues are, without spaces; empty for a receipt that no other call
---          can name
---@args     job    (queue int, id string, due int, body bytes, extra string)  max=1000  queue: its
---          place among the queues, from 0; due and extra: as in push.lua
---@error    LAYOUT  the queue has a later layout
---@error    REUSED  the receipt belongs to jobs of another digest
---@reply    (now time.ms, full int, counts (ready int, scheduled int)[], duplicates (position int,
---          id string)[])  full: 0, or the place from 1 of the queue that has no room; counts: for
---          each queue; position: of the job among all
---@cost     O(log n) for each scheduled job, O(1) for each ready one and for each queue
---@allow    W002 an undo goes as far as it can

local receipt, keep, fresh, digest = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #KEYS > 705 then
  error('queue: at most 64')
end
if #ARGV > 5003 then
  error('job: at most 1000')
end
--< part/push_keep.lua

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first then
  local at, counted, was, list = string.match(first, '^(%d+) (%S*) (%S*) (.*)$')
  --< part/push_counts.lua
  --< part/receipt_read.lua
  return {tonumber(at), 0, counts, rows}
end

--< part/now_ms.lua
local now = tonumber(now_ms)

--< part/push_places.lua

-- A key of the wrong type stops the script here, or where names are looked up, while
-- nothing is written.
local queues, duplicates, dup = {}, {}, 0
for i = 2, #KEYS, 11 do
  local ready, scheduled, bodies, leases = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local failures, unique, expiry, control, wake = KEYS[i + 4], KEYS[i + 5], KEYS[i + 6], KEYS[i + 7], KEYS[i + 8]
  local finished = KEYS[i + 10]
  --< part/push_types.lua
  local waiting, length = redis.call('ZCARD', wake) > 0, redis.call('LLEN', ready)
  local there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases)
  local seen, held, lapsed = {}, {}, {}
  local fields, entries, dues, names, ends, extras = {}, {}, {}, {}, {}, {}
  local f, e, d, u, x, o, soonest = 0, 0, 0, 0, 0, 0, nil
  local number = (i - 2) / 11
  for _, place in ipairs(jobs[tostring(number)]) do
    local id, due, body, extra = ARGV[place + 1], ARGV[place + 2], ARGV[place + 3], ARGV[place + 4]
    local position = (place - 4) / 5
    --< part/push_sort.lua
  end
  if limit > 0 and there + e + d / 2 > limit then
    return {now, number + 1, {}, {}}
  end
  --< part/push_soonest.lua
  queues[number + 1] = {
    at = i, length = length, lapsed = lapsed, waiting = waiting and e + d > 0,
    fields = fields, entries = entries, dues = dues, names = names, ends = ends, e = e, d = d,
    extras = extras,
  }
end

--< part/push_write.lua
local counted = {}
for number, q in ipairs(queues) do
  local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
  local unique, expiry, options = KEYS[q.at + 5], KEYS[q.at + 6], KEYS[q.at + 9]
  local fields, names, ends, dues, entries = q.fields, q.names, q.ends, q.dues, q.entries
  local extras = q.extras
  --< part/push_lists.lua
  counted[number] = q.e .. ',' .. q.d / 2 .. ';'
end
local receipted = {now_ms, ' ', table.concat(counted), ' ', digest, ' '}
--< part/receipt_write.lua
if failure then
  for _, q in ipairs(queues) do
    local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
    local unique, expiry, options = KEYS[q.at + 5], KEYS[q.at + 6], KEYS[q.at + 9]
    local fields, names, ends, dues = q.fields, q.names, q.ends, q.dues
    local lapsed, length, extras = q.lapsed, q.length, q.extras
    --< part/push_undo.lua
  end
  error({err = failure})
end

local counts = {}
for number, q in ipairs(queues) do
  local wake = KEYS[q.at + 8]
  if q.waiting then
    --< part/wake_next.lua
  end
  counts[2 * number - 1], counts[2 * number] = q.e, q.d / 2
end
return {now, 0, counts, duplicates}
