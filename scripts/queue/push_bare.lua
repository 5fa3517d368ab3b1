--- PushBare adds ready jobs whose ids were made for this call, all of them or none.
---
--- This is the short script for the usual batch. The bodies are the receipt: a repeat finds the
--- body of the first job, or the mark that the job left when it was finished, and adds nothing.
--- Nothing else of the call is stored. If the queue has a limit, the script adds nothing: use
--- push.lua.
---
---@contract all-or-nothing  jobs that cannot be queued lose their bodies again
---@retry    safe  for a minute: a repeat finds the body of the first job, or the mark of that job when it is finished
---@guard    guard.lua
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      control   hash  paused, limit, dead_bytes, dead_limits
---@key      wake      zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      finished  zset  ids of finished jobs, scored by that time in ms
---@args     job       (id string, body bytes)  max=1000
---@reply    (limited bool, now time.ms)  limited: the queue has a limit, and nothing was added
---@cost     O(1) for each job
---@allow    W002 an undo goes as far as it can

local ready, bodies, control, wake, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

if #ARGV > 2000 then
  error('job: at most 1000')
end
if #ARGV % 2 == 1 then
  error('job: an id without a body')
end
--< part/now_ms.lua

-- Whether the call was here before is asked first: a limit that was set since makes no new call of a repeat.
local first = ARGV[1]
if redis.call('ZSCORE', finished, first) or redis.call('HEXISTS', bodies, first) == 1 then
  return {0, now_ms}
end
local special = redis.call('EXISTS', control, wake) > 0
local waiting = special and redis.call('ZCARD', wake) > 0
if special and redis.call('HEXISTS', control, 'limit') == 1 then
  return {1, now_ms}
end

local prefix, entries, n = now_ms .. ':', {}, 0
for i = 1, #ARGV, 2 do
  n = n + 1
  entries[n] = prefix .. ARGV[i]
end

-- Bodies first: what no list names cannot be taken. They go in short commands, since each leaves the memory of its
-- arguments to the next: a thousand bodies in one command took half as long again.
local done
for i = 1, #ARGV, 100 do
  done = redis.pcall('HSET', bodies, unpack(ARGV, i, math.min(i + 99, #ARGV)))
  if type(done) == 'table' then
    break
  end
end
if type(done) ~= 'table' then
  done = redis.pcall('RPUSH', ready, unpack(entries, 1, math.min(n, 1000)))
end
if type(done) == 'table' then
  for i = 1, #ARGV, 2 do
    redis.pcall('HDEL', bodies, ARGV[i])
  end
  error(done)
end

if waiting then
  --< part/wake_next.lua
end
return {0, now_ms}
