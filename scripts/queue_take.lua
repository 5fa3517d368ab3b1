--- QueueTake leases the oldest ready jobs to a worker.
---
--- What is due moves to ready first, so scheduled jobs run without a poller. Each
--- job taken is leased until the time that is also its fence: ack, nack and extend
--- name it, and one that another lease has replaced is refused. An entry without a
--- body, left by a cancelled job, is dropped and counted.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  jobs of a lost reply come back when their lease ends
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job
---@key      control    hash  paused, limit, dead_bytes
---@key      wake       zset  channels of those who wait, scored by the end of their wait in ms
---@arg      lease  ms   min=1  how long the jobs are leased
---@arg      max    int  min=1 max=300  the most jobs to take
---@arg      bytes  int  min=1  stop before the bodies exceed this; one job is always taken
---@arg      waiter  string  channel to be told on when there may be work, if there is none now; empty for none
---@arg      wait    ms  min=0  how long it listens
---@reply    (now int, fence int, paused bool, jobs (id string, body bytes, enqueued_at time.ms,
---          failures int)[], dropped int, next_due time.ms?, next_lapse int?)  now, fence,
---          next_lapse: in us; fence: the end of the leases
---@cost     O(log n) for each job taken or promoted

local ready, scheduled, bodies, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local failures, control, wake = KEYS[5], KEYS[6], KEYS[7]
local lease, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local waiter, wait = ARGV[4], tonumber(ARGV[5])

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))
local now_us = time[1] .. string.format('%06d', time[2])
local fence = string.format('%.0f', now_us + lease * 1000)

-- A key of the wrong type stops the script here, while nothing is written.
local waiting = redis.call('ZCARD', wake) > 0
redis.call('HLEN', bodies)
local failed = redis.call('HLEN', failures) > 0
local due = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, max)
local lapse = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')

local next_lapse = lapse[2] and tonumber(lapse[2]) or false

local function next_due()
  local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or false
end

-- listen is in the same step as the look that found nothing: no work can come in
-- between unnoticed.
local function listen()
  if waiter ~= '' then
    redis.call('ZADD', wake, string.format('%.0f', now + wait), waiter)
    -- Those who wait for longer keep the key for as long as they need it.
    local stay = string.format('%.0f', wait + 1000)
    if redis.call('PEXPIRE', wake, stay, 'GT') == 0 then
      redis.call('PEXPIRE', wake, stay, 'NX')
    end
  end
end

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

-- The member does not exist. A script whose first write frees memory may go on
-- to use some: so consumers can drain a server that is over its limit.
redis.call('ZREM', leases, '')

if redis.call('HGET', control, 'paused') then
  listen()
  return {tonumber(now_us), tonumber(fence), 1, {}, 0, next_due(), next_lapse}
end

if #due > 0 then
  local entries = {}
  for i, id in ipairs(due) do
    entries[i] = now .. ':' .. id
  end
  redis.call('RPUSH', ready, unpack(entries, 1, #entries))
  redis.call('ZREMRANGEBYRANK', scheduled, 0, #due - 1)
end

local jobs, grants = {}, {}
local j, g, read, size, dropped = 0, 0, 0, 0, 0
for _ = 1, 8 do -- rounds, when all entries of one were dropped
  local entries = redis.call('LRANGE', ready, read, read + max - 1)
  if #entries == 0 then
    break
  end
  local ids = {}
  for i = 1, #entries do
    local entry = entries[i]
    -- A foreign entry names no job and is dropped: it must not block the head.
    ids[i] = string.sub(entry, (string.find(entry, ':', 1, true) or #entry) + 1)
  end
  local found = redis.call('HMGET', bodies, unpack(ids, 1, #ids))
  local counts = failed and redis.call('HMGET', failures, unpack(ids, 1, #ids)) or {}
  for i = 1, #ids do
    local id, body, count = ids[i], found[i], counts[i]
    if count == 'x' then
      -- A cancelled job kept its id until here, so that no other could take the
      -- entry for its own.
      redis.call('HDEL', bodies, id)
      redis.call('HDEL', failures, id)
      body = false
    end
    if body then
      size = size + #body
      if j > 0 and size > bytes then
        break
      end
      local stamp = string.sub(entries[i], 1, #entries[i] - #id - 1)
      jobs[j + 1], jobs[j + 2], jobs[j + 3], jobs[j + 4] = id, body, tonumber(stamp), count and tonumber(count) or 0
      grants[g + 1], grants[g + 2] = fence, id
      j, g = j + 4, g + 2
    else
      dropped = dropped + 1
    end
    read = read + 1
  end
  if j > 0 then
    break
  end
end

for i = 1, g, 1000 do
  redis.call('ZADD', leases, unpack(grants, i, math.min(i + 999, g)))
end
if read > 0 then
  redis.call('LTRIM', ready, read, -1)
end

if j == 0 and dropped == 0 then
  listen()
elseif waiting then
  redis.call('ZREM', wake, waiter)
  if redis.call('LLEN', ready) > 0 then
    rouse() -- and so on, one after the other, while there is work
  end
end

return {tonumber(now_us), tonumber(fence), 0, jobs, dropped, next_due(), next_lapse}
