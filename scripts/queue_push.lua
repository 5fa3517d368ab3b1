--- QueuePush adds jobs to a queue, each ready at once or scheduled, all of them or none.
---
--- A job is a duplicate when the queue knows its id (ready, scheduled, leased or dead, or cancelled
--- with an entry that is not dropped yet), or when another job holds its unique key. A duplicate is
--- left out and reported with the id of the existing job. Every ready job has the same stamp from
--- the server's clock, its enqueued_at. When the new jobs would exceed the limit in control, none
--- is added.
---
--- Long because the receipt, what is known and the undoing of a refused write stand together. The
--- usual push, of jobs without ids and options of their own, is queue_push_one.lua or
--- queue_push_bare.lua.
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
---@arg      keep       ms  min=1  how long the receipt is kept
---@arg      fresh      bool  every id was made for this call, so none is looked up
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
local keep, fresh, digest = ARGV[1], ARGV[2], ARGV[3]

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local limit = redis.call('HGET', control, 'limit')
if limit and not tonumber(limit) then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
local waiting = redis.call('ZCARD', wake) > 0

if #ARGV > 4003 then
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
if first and first ~= '' then
  local r, s, at, was, list = string.match(first, '^(%d+) (%d+) (%d+) (%S*) (.*)$')
  --< part/queue_push_reused.lua
  -- The jobs of the first call were other ones: its answer would say that these are in.
  if was ~= digest then
    return redis.error_reply('REUSED the receipt belongs to other jobs')
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
local later = math.floor(d / 2)

if limit > 0 then
  local there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases)
  if there + e + later > limit then
    return {0, 0, now, 1, {}}
  end
end

--< part/queue_push_soonest.lua
-- A waiter has to check again when there is work, or when the next job is due earlier than
-- the waiters know.
if soonest and waiting and e == 0 then
  local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  waiting = not head[1] or soonest < tonumber(head[2])
end
-->

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
--< part/queue_push_lists.lua
-- Bodies first: what no list names cannot be taken.
write('HSET', bodies, fields)
write('HSET', options, extras)
write('HSET', unique, names)
write('ZADD', expiry, ends)
write('ZADD', scheduled, dues)
write('RPUSH', ready, entries)
-->
local receipted = {e, ' ', later, ' ', now_ms, ' ', digest, ' '}
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
  error({err = failure})
end

if waiting then
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
return {e, later, now, 0, duplicates}
