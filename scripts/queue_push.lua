--- QueuePush adds jobs to a queue, each ready at once or scheduled, all of them or none.
---
--- A job is a duplicate when the queue knows its id (ready, scheduled, leased or
--- dead, or cancelled and not yet passed over), or another job holds its unique key.
--- It is left out and reported with the id of the job that is there. Every ready job
--- carries one stamp from the server's clock, its enqueued_at. When the new jobs would
--- pass the limit in control, none goes in.
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
---@key      control    hash    paused, limit, dead_bytes
---@key      wake       zset    channels of those who wait, scored by the end of their wait in ms
---@key      receipt    string  the result, kept for a repeat of this call
---@arg      keep       ms  min=1  how long the receipt is kept
---@arg      fresh      bool  every id was made for this call, so none is looked up
---@args     job        (id string, due int, body bytes, hold string)  max=1000  due: 0 at once,
---          above 0 Unix ms, below 0 so many ms from now; hold: empty, or ms:name of a unique key,
---          0 ms for as long as the job is there
---@reply    (ready int, scheduled int, now time.ms, full bool, duplicates (position int, id string)[])
---@cost     O(log n) for each scheduled job, O(1) for each ready one
---@allow    W002 an undo goes as far as it can

local ready, scheduled, bodies, leases, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, expiry, control, wake, receipt = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local keep, fresh = ARGV[1], ARGV[2]

-- rouse tells the one that has waited longest. A channel without a receiver
-- belonged to a process that is gone. Only a hint: that it may not be allowed
-- changes nothing.
local function rouse()
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
local function here(id)
  return redis.call('HEXISTS', bodies, id) == 1 or redis.call('HGET', failures, id) == 'x'
end

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
local limit = redis.call('HGET', control, 'limit')
local waiting = redis.call('ZCARD', wake) > 0

-- The short way of one ready job without a unique name, in a queue without a limit:
-- half the commands of the long one below. The receipt, which is looked for and written
-- in one command, comes first. When it is there, or the id is known, the long way has
-- the answer.
if #ARGV == 6 and not limit then
  local id, due, body, hold = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  if due == '0' and hold == '' and (fresh == '1' or not here(id)) then
    local kept = redis.pcall('SET', receipt, '1 0 ' .. now .. ' ', 'NX', 'PX', keep)
    if kept then
      local failure = kept.err
      if not failure then
        local added = redis.pcall('HSET', bodies, id, body)
        local queued = type(added) == 'number' and redis.pcall('RPUSH', ready, now .. ':' .. id)
        if type(queued) == 'table' then
          redis.pcall('HDEL', bodies, id)
        end
        if type(queued) ~= 'number' then
          failure = (queued or added).err
          -- A receipt that stayed would tell a repeat that the job is in. Whoever may
          -- not delete it may write it: an empty one is none.
          local gone = redis.pcall('DEL', receipt)
          if type(gone) == 'table' then
            redis.pcall('SET', receipt, '', 'PX', 1)
          end
        end
      end
      if failure then
        error({err = failure})
      end
      if waiting then
        rouse()
      end
      return {1, 0, now, 0, false}
    end
  end
end

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first and first ~= '' then
  local r, s, at, list = string.match(first, '^(%d+) (%d+) (%d+) (.*)$')
  local rows, n, from = {}, 0, 1
  while from <= #list do
    local _, last, position, size = string.find(list, '^(%d+):(%d+):', from)
    rows[n + 1], rows[n + 2] = tonumber(position), string.sub(list, last + 1, last + size)
    n, from = n + 2, last + size + 1
  end
  return {tonumber(r), tonumber(s), tonumber(at), 0, rows}
end

local now_ms = tonumber(now)
local length = redis.call('LLEN', ready)
limit = tonumber(limit or 0)

-- holder is the id of the job that holds a unique key, unless its time is over.
local lapsed = {}
local function holder(name)
  local id = redis.call('HGET', unique, 'k:' .. name)
  local over = id and redis.call('ZSCORE', expiry, name)
  if over and tonumber(over) > now_ms then
    return id
  end
  lapsed[name] = over and {id, over}
end

local seen, held, duplicates, dup = {}, {}, {}, 0
local fields, entries, dues, names, ends = {}, {}, {}, {}, {}
local f, e, d, u, x, later, soonest = 0, 0, 0, 0, 0, 0, nil
for i = 3, #ARGV, 4 do
  local id, due, body, hold = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local known = fresh ~= '1' and (seen[id] or here(id)) and id
  local ttl, name
  if hold ~= '' and not known then
    ttl, name = string.match(hold, '^(%d+):(.*)$')
    known = held[name] or holder(name)
  end
  if known then
    duplicates[dup + 1], duplicates[dup + 2] = (i - 3) / 4, known
    dup = dup + 2
  else
    seen[id] = true
    fields[f + 1], fields[f + 2] = id, body
    f = f + 2
    if name then
      held[name] = id
      names[u + 1], names[u + 2], names[u + 3], names[u + 4] = 'k:' .. name, id, 'j:' .. id, name
      u = u + 4
      -- A key without an end has one that no clock reaches.
      ends[x + 1], ends[x + 2] = ttl == '0' and '9007199254740991' or string.format('%.0f', now_ms + ttl), name
      x = x + 2
    end
    local at = due == '0' and 0 or tonumber(due)
    if at < 0 then
      at = now_ms - at
    end
    if at > now_ms then
      dues[d + 1], dues[d + 2] = string.format('%.0f', at), id
      d, later = d + 2, later + 1
      soonest = math.min(soonest or at, at)
    else
      e = e + 1
      entries[e] = now .. ':' .. id
    end
  end
end

if limit > 0 then
  local there = length + redis.call('ZCARD', scheduled) + redis.call('ZCARD', leases)
  if there + e + later > limit then
    return {0, 0, now_ms, 1, {}}
  end
end

-- Somebody must look when there is work, or when the next job is due earlier than
-- those who wait believe.
if soonest and waiting and e == 0 then
  local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  waiting = not head[1] or soonest < tonumber(head[2])
end

-- Bodies first: what no list names cannot be taken. A write can be refused for
-- the type of its key, or by an ACL that allows some of the commands.
local failure
local function write(command, key, list, n)
  for i = 1, n, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, n)))
      failure = type(done) == 'table' and done.err
    end
  end
end
write('HSET', bodies, fields, f)
write('HSET', unique, names, u)
write('ZADD', expiry, ends, x)
write('ZADD', scheduled, dues, d)
write('RPUSH', ready, entries, e)
if not failure then
  local text = {e, ' ', later, ' ', now, ' '}
  for i = 1, dup, 2 do
    text[#text + 1] = duplicates[i] .. ':' .. #duplicates[i + 1] .. ':' .. duplicates[i + 1]
  end
  local done = redis.pcall('SET', receipt, table.concat(text), 'PX', keep)
  failure = done.err
end

-- What was written is taken back. A hold that was over is written over, not taken away
-- and put back: the second may not be allowed.
if failure then
  for i = 1, f, 2 do
    redis.pcall('HDEL', bodies, fields[i])
  end
  for i = 1, u, 4 do
    local was = lapsed[names[i + 3]]
    redis.pcall('HDEL', unique, names[i + 2])
    if was then
      redis.pcall('HSET', unique, names[i], was[1])
    else
      redis.pcall('HDEL', unique, names[i])
    end
  end
  for i = 2, x, 2 do
    local was = lapsed[ends[i]]
    if was then
      redis.pcall('ZADD', expiry, was[2], ends[i])
    else
      redis.pcall('ZREM', expiry, ends[i])
    end
  end
  for i = 2, d, 2 do
    redis.pcall('ZREM', scheduled, dues[i])
  end
  if length == 0 then
    redis.pcall('DEL', ready)
  else
    redis.pcall('LTRIM', ready, 0, length - 1)
  end
  error({err = failure})
end

if waiting then
  rouse()
end
return {e, later, now_ms, 0, duplicates}
