--- QueuePushMany adds jobs to several queues of one slot, all of them or none.
---
--- For each queue it does what queue_push.lua does: ids and unique names are known to
--- their own queue, and each queue keeps its own limit. When the new jobs of one queue
--- would pass its limit, no queue gets any. There is one receipt for the whole batch.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    safe  the same receipt gives the first result again, for as long as it is kept
---@guard    guard.lua
---@key      receipt  string  the result, kept for a repeat of this call
---@keys     queue  (ready list, scheduled zset, bodies hash, leases zset, failures hash,
---          unique hash, expiry zset, control hash, wake zset)  max=64  the keys of each queue, as
---          in queue_push.lua
---@arg      keep   ms  min=1  how long the receipt is kept
---@arg      fresh  bool  every id was made for this call, so none is looked up
---@args     job    (queue int, id string, due int, body bytes, hold string)  max=1000  queue: its
---          place among the queues, from 0; due: 0 at once, above 0 Unix ms, below 0 so many ms
---          from now; hold: empty, or ms:name of a unique key, 0 ms for as long as the job is there
---@reply    (now time.ms, full int, counts (ready int, scheduled int)[], duplicates (position int,
---          id string)[])  full: 0, or the place from 1 of the queue that has no room; counts: for
---          each queue; position: of the job among all
---@cost     O(log n) for each scheduled job, O(1) for each ready one and for each queue
---@allow    W002 an undo goes as far as it can

local receipt = KEYS[1]
local keep, fresh = ARGV[1], ARGV[2]

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first then
  local at, counted, list = string.match(first, '^(%d+) (%S*) (.*)$')
  local counts, n = {}, 0
  for r, s in string.gmatch(counted, '(%d+),(%d+);') do
    counts[n + 1], counts[n + 2] = tonumber(r), tonumber(s)
    n = n + 2
  end
  local rows, m, from = {}, 0, 1
  while from <= #list do
    local _, last, position, size = string.find(list, '^(%d+):(%d+):', from)
    rows[m + 1], rows[m + 2] = tonumber(position), string.sub(list, last + 1, last + size)
    m, from = m + 2, last + size + 1
  end
  return {tonumber(at), 0, counts, rows}
end

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))
local now_ms = tonumber(now)

-- A key of the wrong type stops the script here, or where names are looked up, while
-- nothing is written. at is the place of a queue's first key.
local queues, n = {}, 0
for i = 2, #KEYS, 9 do
  local ready, scheduled, bodies, leases = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local expiry, control, wake = KEYS[i + 6], KEYS[i + 7], KEYS[i + 8]
  redis.call('HLEN', bodies)
  redis.call('ZCARD', expiry)
  redis.call('ZCARD', wake)
  local length = redis.call('LLEN', ready)
  n = n + 1
  queues[n] = {
    at = i,
    length = length,
    there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases),
    limit = tonumber(redis.call('HGET', control, 'limit') or 0),
    seen = {}, held = {}, lapsed = {},
    fields = {}, entries = {}, dues = {}, names = {}, ends = {},
    f = 0, e = 0, d = 0, u = 0, x = 0,
  }
end

-- rouse tells the one that has waited longest. A channel without a receiver
-- belonged to a process that is gone. Only a hint: that it may not be allowed
-- changes nothing.
local function rouse(wake)
  for _ = 1, 8 do
    local waiter = redis.pcall('ZPOPMIN', wake)
    if waiter.err or not waiter[1] then
      return
    end
    local heard = redis.pcall('PUBLISH', waiter[1], '')
    if type(heard) == 'table' and heard.err or heard ~= 0 then
      return
    end
  end
end

-- here says whether the queue has the id. One that is cancelled has its mark for as
-- long as its old entry may be there, which would deliver a new job of that id.
local function here(bodies, failures, id)
  return redis.call('HEXISTS', bodies, id) == 1 or redis.call('HGET', failures, id) == 'x'
end

-- holder is the id of the job that holds a unique key, unless its time is over.
local function holder(unique, expiry, lapsed, name)
  local id = redis.call('HGET', unique, 'k:' .. name)
  local over = id and redis.call('ZSCORE', expiry, name)
  if over and tonumber(over) > now_ms then
    return id
  end
  lapsed[name] = over and {id, over}
end

local duplicates, dup = {}, 0
for i = 3, #ARGV, 5 do
  local queue, id, due, body, hold = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
  local q = queues[queue + 1]
  local known = false
  if fresh ~= '1' then
    local bodies, failures = KEYS[q.at + 2], KEYS[q.at + 4]
    known = (q.seen[id] or here(bodies, failures, id)) and id
  end
  local ttl, name
  if hold ~= '' and not known then
    local unique, expiry = KEYS[q.at + 5], KEYS[q.at + 6]
    ttl, name = string.match(hold, '^(%d+):(.*)$')
    known = q.held[name] or holder(unique, expiry, q.lapsed, name)
  end
  if known then
    duplicates[dup + 1], duplicates[dup + 2] = (i - 3) / 5, known
    dup = dup + 2
  else
    q.seen[id] = true
    q.fields[q.f + 1], q.fields[q.f + 2] = id, body
    q.f = q.f + 2
    if name then
      q.held[name] = id
      local names, u = q.names, q.u
      names[u + 1], names[u + 2], names[u + 3], names[u + 4] = 'k:' .. name, id, 'j:' .. id, name
      q.u = u + 4
      -- A key without an end has one that no clock reaches.
      q.ends[q.x + 1] = ttl == '0' and '9007199254740991' or string.format('%.0f', now_ms + ttl)
      q.ends[q.x + 2] = name
      q.x = q.x + 2
    end
    if due < 0 then
      due = now_ms - due
    end
    if due > now_ms then
      q.dues[q.d + 1], q.dues[q.d + 2] = string.format('%.0f', due), id
      q.d = q.d + 2
      q.soonest = math.min(q.soonest or due, due)
    else
      q.e = q.e + 1
      q.entries[q.e] = now .. ':' .. id
    end
  end
end

-- Somebody must look when there is work, or when the next job is due earlier than
-- those who wait believe.
for number, q in ipairs(queues) do
  if q.limit > 0 and q.there + q.e + q.d / 2 > q.limit then
    return {now_ms, number, {}, {}}
  end
  local scheduled = KEYS[q.at + 1]
  q.rouses = q.e > 0
  if q.soonest and not q.rouses then
    local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    q.rouses = not head[1] or q.soonest < tonumber(head[2])
  end
end

-- Bodies first: what no list names cannot be taken. A write can be refused by an ACL
-- that allows some of the commands or some of the keys.
local failure
local function write(command, key, list, length)
  for i = 1, length, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, length)))
      failure = type(done) == 'table' and done.err
    end
  end
end
local counted = {}
for number, q in ipairs(queues) do
  local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
  local unique, expiry = KEYS[q.at + 5], KEYS[q.at + 6]
  write('HSET', bodies, q.fields, q.f)
  write('HSET', unique, q.names, q.u)
  write('ZADD', expiry, q.ends, q.x)
  write('ZADD', scheduled, q.dues, q.d)
  write('RPUSH', ready, q.entries, q.e)
  counted[number] = q.e .. ',' .. q.d / 2 .. ';'
end
if not failure then
  local text = {now, ' ', table.concat(counted), ' '}
  for i = 1, dup, 2 do
    text[#text + 1] = duplicates[i] .. ':' .. #duplicates[i + 1] .. ':' .. duplicates[i + 1]
  end
  local done = redis.pcall('SET', receipt, table.concat(text), 'PX', keep)
  failure = done.err
end

-- undo takes back what was written. A hold that was over is written over, not taken
-- away and put back: the second may not be allowed.
local function undo(q)
  local ready, scheduled, bodies = KEYS[q.at], KEYS[q.at + 1], KEYS[q.at + 2]
  local unique, expiry = KEYS[q.at + 5], KEYS[q.at + 6]
  for i = 1, q.f, 2 do
    redis.pcall('HDEL', bodies, q.fields[i])
  end
  for i = 1, q.u, 4 do
    local was = q.lapsed[q.names[i + 3]]
    redis.pcall('HDEL', unique, q.names[i + 2])
    if was then
      redis.pcall('HSET', unique, q.names[i], was[1])
    else
      redis.pcall('HDEL', unique, q.names[i])
    end
  end
  for i = 2, q.x, 2 do
    local was = q.lapsed[q.ends[i]]
    if was then
      redis.pcall('ZADD', expiry, was[2], q.ends[i])
    else
      redis.pcall('ZREM', expiry, q.ends[i])
    end
  end
  for i = 2, q.d, 2 do
    redis.pcall('ZREM', scheduled, q.dues[i])
  end
  if q.length == 0 then
    redis.pcall('DEL', ready)
  else
    redis.pcall('LTRIM', ready, 0, q.length - 1)
  end
end
if failure then
  for _, q in ipairs(queues) do
    undo(q)
  end
  error({err = failure})
end

local counts = {}
for number, q in ipairs(queues) do
  local wake = KEYS[q.at + 8]
  if q.rouses then
    rouse(wake)
  end
  counts[2 * number - 1], counts[2 * number] = q.e, q.d / 2
end
return {now_ms, 0, counts, duplicates}
