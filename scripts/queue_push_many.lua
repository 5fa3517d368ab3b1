--- QueuePushMany adds jobs to several queues of one slot, all of them or none.
---
--- For each queue it does what queue_push.lua does: each queue has its own ids, unique names and
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
---          unique hash, expiry zset, control hash, wake zset, options hash)  max=64  the keys of each
---          queue, as in queue_push.lua
---@arg      keep   ms  min=1  how long the receipt is kept
---@arg      fresh  bool  every id was made for this call, so none is looked up
---@arg      digest  string  what the jobs and their queues are, without spaces; empty for a receipt that no other call
---          can name
---@args     job    (queue int, id string, due int, body bytes, extra string)  max=1000  queue: its
---          place among the queues, from 0; due and extra: as in queue_push.lua
---@error    LAYOUT  the queue has a later layout
---@error    REUSED  the receipt belongs to jobs of another digest
---@reply    (now time.ms, full int, counts (ready int, scheduled int)[], duplicates (position int,
---          id string)[])  full: 0, or the place from 1 of the queue that has no room; counts: for
---          each queue; position: of the job among all
---@cost     O(log n) for each scheduled job, O(1) for each ready one and for each queue
---@allow    W002 an undo goes as far as it can

local receipt, keep, fresh, digest = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #KEYS > 641 then
  error('queue: at most 64')
end
if #ARGV > 5003 then
  error('job: at most 1000')
end
--< part/queue_push_keep.lua
-- A receipt that ends at once is none.
if not (tonumber(keep) and tonumber(keep) >= 1) then
  error('keep must be 1 or more')
end
-->

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first then
  local at, counted, was, list = string.match(first, '^(%d+) (%S*) (%S*) (.*)$')
  --< part/queue_push_counts.lua
  -- The jobs of the first call were other ones: its answer would say that these are in.
  if was ~= digest then
    return redis.error_reply('REUSED the receipt belongs to other jobs')
  end
  local counts = {}
  for n in string.gmatch(counted, '%d+') do
    counts[#counts + 1] = tonumber(n)
  end
  -->
  --< part/queue_receipt_read.lua
  -- The duplicates of the first call: position and id of each, from list.
  local rows, n, from = {}, 0, 1
  while from <= #list do
    local _, last, position, size = string.find(list, '^(%d+):(%d+):', from)
    rows[n + 1], rows[n + 2] = tonumber(position), string.sub(list, last + 1, last + size)
    n, from = n + 2, last + size + 1
  end
  -->
  return {tonumber(at), 0, counts, rows}
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

--< part/queue_push_places.lua
-- The places of each queue's jobs. A queue that is not among the keys stops the script.
local jobs = {}
for i = 2, #KEYS, 10 do
  jobs[tostring((i - 2) / 10)] = {}
end
for i = 4, #ARGV, 5 do
  local queue = ARGV[i]
  local places = jobs[queue]
  places[#places + 1] = i
end
-->

-- A key of the wrong type stops the script here, or where names are looked up, while
-- nothing is written.
local queues, duplicates, dup = {}, {}, 0
for i = 2, #KEYS, 10 do
  local ready, scheduled, bodies, leases = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local failures, unique, expiry, control, wake = KEYS[i + 4], KEYS[i + 5], KEYS[i + 6], KEYS[i + 7], KEYS[i + 8]
  --< part/queue_push_types.lua
  redis.call('HLEN', bodies)
  redis.call('ZCARD', expiry)
  redis.call('HLEN', KEYS[i + 9])
  local limit = tonumber(redis.call('HGET', control, 'limit') or 0)
  if not limit then
    return redis.error_reply('LAYOUT the queue has a later layout')
  end
  -->
  local waiting, length = redis.call('ZCARD', wake) > 0, redis.call('LLEN', ready)
  local there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases)
  local seen, held, lapsed = {}, {}, {}
  local fields, entries, dues, names, ends, extras = {}, {}, {}, {}, {}, {}
  local f, e, d, u, x, o, soonest = 0, 0, 0, 0, 0, 0, nil
  local number = (i - 2) / 10
  for _, place in ipairs(jobs[tostring(number)]) do
    local id, due, body, extra = ARGV[place + 1], ARGV[place + 2], ARGV[place + 3], ARGV[place + 4]
    local position = (place - 4) / 5
    --< part/queue_push_sort.lua
    -- A job that the queue knows, or whose unique name another job holds, is a duplicate. A
    -- cancelled job keeps its id, under the mark x, for as long as its old entry may be in
    -- ready: that entry would deliver a new job of that id.
    local known = fresh ~= '1' and (seen[id] or redis.call('HEXISTS', bodies, id) == 1
      or redis.call('HGET', failures, id) == 'x') and id
    local ttl, name, more
    if extra ~= '' and not known then
      local size, from
      ttl, size, from = string.match(extra, '^(%d+):(%d+):()')
      name, more = string.sub(extra, from, from + size - 1), string.sub(extra, from + size)
    end
    if name and name ~= '' then
      known = held[name]
      local holder = not known and redis.call('HGET', unique, 'k:' .. name)
      local over = holder and redis.call('ZSCORE', expiry, name)
      if over and tonumber(over) > now then
        known = holder
      elseif over then
        lapsed[name] = {holder, over} -- for an undo
      end
    end
    if known then
      duplicates[dup + 1], duplicates[dup + 2] = position, known
      dup = dup + 2
    else
      seen[id] = true
      fields[f + 1], fields[f + 2] = id, body
      f = f + 2
      if more and more ~= '' then
        extras[o + 1], extras[o + 2] = id, more
        o = o + 2
      end
      if name and name ~= '' then
        held[name] = id
        names[u + 1], names[u + 2], names[u + 3], names[u + 4] = 'k:' .. name, id, 'j:' .. id, name
        u = u + 4
        -- A name without an end has one that no clock reaches.
        ends[x + 1], ends[x + 2] = ttl == '0' and '9007199254740991' or string.format('%.0f', now + ttl), name
        x = x + 2
      end
      local at = due == '0' and 0 or tonumber(due)
      if at < 0 then
        at = now + 1 - at -- now is rounded down
      end
      if at > now then
        dues[d + 1], dues[d + 2] = string.format('%.0f', at), id
        d = d + 2
        soonest = math.min(soonest or at, at)
      else
        e = e + 1
        entries[e] = now_ms .. ':' .. id
      end
    end
    -->
  end
  if limit > 0 and there + e + d / 2 > limit then
    return {now, number + 1, {}, {}}
  end
  --< part/queue_push_soonest.lua
  -- A waiter has to check again when there is work, or when the next job is due earlier than
  -- the waiters know.
  if soonest and waiting and e == 0 then
    local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    waiting = not head[1] or soonest < tonumber(head[2])
  end
  -->
  queues[number + 1] = {
    at = i, length = length, lapsed = lapsed, waiting = waiting and e + d > 0,
    fields = fields, entries = entries, dues = dues, names = names, ends = ends, e = e, d = d,
    extras = extras,
  }
end

--< part/queue_push_write.lua
-- write adds a list to a key, in commands that unpack can bear. A write can be refused for
-- the type of its key, or by an ACL that allows some of the commands or keys; after that
-- nothing more is written.
local failure
local function write(command, key, list)
  for i = 1, #list, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, #list)))
      failure = type(done) == 'table' and done.err
    end
  end
end
-->
local counted = {}
for number, q in ipairs(queues) do
  local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
  local unique, expiry, options = KEYS[q.at + 5], KEYS[q.at + 6], KEYS[q.at + 9]
  local fields, names, ends, dues, entries = q.fields, q.names, q.ends, q.dues, q.entries
  local extras = q.extras
  --< part/queue_push_lists.lua
  -- Bodies first: what no list names cannot be taken.
  write('HSET', bodies, fields)
  write('HSET', options, extras)
  write('HSET', unique, names)
  write('ZADD', expiry, ends)
  write('ZADD', scheduled, dues)
  write('RPUSH', ready, entries)
  -->
  counted[number] = q.e .. ',' .. q.d / 2 .. ';'
end
local receipted = {now_ms, ' ', table.concat(counted), ' ', digest, ' '}
--< part/queue_receipt_write.lua
-- The receipt is last: it says that all is in. See queue_receipt_read.lua for the duplicates.
if not failure then
  for i = 1, dup, 2 do
    receipted[#receipted + 1] = duplicates[i] .. ':' .. #duplicates[i + 1] .. ':' .. duplicates[i + 1]
  end
  local done = redis.pcall('SET', receipt, table.concat(receipted), 'PX', keep)
  failure = done.err
end
-->
if failure then
  for _, q in ipairs(queues) do
    local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
    local unique, expiry, options = KEYS[q.at + 5], KEYS[q.at + 6], KEYS[q.at + 9]
    local fields, names, ends, dues = q.fields, q.names, q.ends, q.dues
    local lapsed, length, extras = q.lapsed, q.length, q.extras
    --< part/queue_push_undo.lua
    -- What was written is taken back. A name whose time was over is written over, not removed
    -- and added: the second may not be allowed.
    for i = 1, #fields, 2 do
      redis.pcall('HDEL', bodies, fields[i])
    end
    for i = 1, #extras, 2 do
      redis.pcall('HDEL', options, extras[i])
    end
    for i = 1, #names, 4 do
      local was = lapsed[names[i + 3]]
      redis.pcall('HDEL', unique, names[i + 2])
      if was then
        redis.pcall('HSET', unique, names[i], was[1])
      else
        redis.pcall('HDEL', unique, names[i])
      end
    end
    for i = 2, #ends, 2 do
      local was = lapsed[ends[i]]
      if was then
        redis.pcall('ZADD', expiry, was[2], ends[i])
      else
        redis.pcall('ZREM', expiry, ends[i])
      end
    end
    for i = 2, #dues, 2 do
      redis.pcall('ZREM', scheduled, dues[i])
    end
    if length == 0 then
      redis.pcall('DEL', ready)
    else
      redis.pcall('LTRIM', ready, 0, length - 1)
    end
    -->
  end
  error({err = failure})
end

local counts = {}
for number, q in ipairs(queues) do
  local wake = KEYS[q.at + 8]
  if q.waiting then
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
  counts[2 * number - 1], counts[2 * number] = q.e, q.d / 2
end
return {now, 0, counts, duplicates}
