--- WorkerTake finishes jobs of a process and hands it the next ones of its queues, in
--- the order of the keys.
---
--- What it hands out is kept in the process's hash until the process finishes it, or,
--- when its lease is over, until another one puts it back.
---
--- The hash keeps the highest number that was handed out, or under which a call found no
--- job: a call whose first number is not above it is a repeat, however late it arrives, and
--- takes nothing from the queues. Without jobs the number stays for a day, as it does after
--- WorkerReturn.
---
--- Once the payloads have a MiB, it takes no more: the next call does.
---
--- Long because one call finishes jobs and takes the next, and knows its own repeat.
---
---@contract dup-only  a job is in the hash before it leaves its queue
---@retry    safe  the same first number gives the same jobs, those of them that are still in the
---          hash, and a job is finished once
---@slots    any  Sidekiq's keys have no tag in common
---@key      processes  zset    name of a process, scored by the end of its lease in Unix ms
---@key      working    hash    number of a job to the length of its queue's key, a colon, that key and the payload;
---          last: the highest number that a call has used
---@key      processed  string  Sidekiq's stat:processed
---@key      day        string  Sidekiq's stat:processed of the day
---@keys     queue      list  max=1000  the payload at the tail is served first
---@arg      process    string
---@arg      lease      ms  min=1
---@arg      first      int  min=1  number of the first job that is handed out
---@arg      want       int  min=0  max=500  how many at most
---@args     done       int  max=1000  numbers of the jobs that are finished
---@reply    (last int, jobs (id int, queue string, payload bytes)[])  last: the highest number that a call
---          has used, 0 for none
---@cost     O(k) for k jobs handed out and finished, O(1) for each queue
---@allow    W002 a job does not wait for a counter that is not one

local processes, working, processed, day = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local process, lease, first, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (lease and lease >= 1) then
  error('lease must be 1 or more')
end
if #KEYS > 1004 then
  error('queue: at most 1000')
end
if #ARGV > 1004 then
  error('done: at most 1000')
end
if not (want and want >= 0 and want <= 500) then
  error('want must be 0 to 500')
end
if not (first and first >= 1 and first <= 2 ^ 53 - 500) then
  error('first must be 1 to 2^53 - 500')
end

-- A key of the wrong type stops the script while nothing is written.
local last = tonumber(redis.call('HGET', working, 'last') or 0)
local jobs, j, fields, f, cut, none = {}, 0, {}, 0, {}, false

if want > 0 and first <= last then
  -- A repeat: its jobs have left their queues, and some may have left the hash too.
  local ids = {}
  for i = 1, want do
    ids[i] = string.format('%.0f', first + i - 1)
  end
  for i, kept in ipairs(redis.call('HMGET', working, unpack(ids, 1, math.min(want, 500)))) do
    if kept then
      local _, colon, size = string.find(kept, '^(%d+):')
      jobs[j + 1], jobs[j + 2] = tonumber(ids[i]), string.sub(kept, colon + 1, colon + size)
      jobs[j + 3] = string.sub(kept, colon + size + 1)
      j = j + 3
    end
  end
else
  local id, size = first, 0
  for i = 5, #KEYS do
    local queue = KEYS[i]
    local room = first + want - id
    if not cut[queue] then
      --< part/take_tail.lua
    end
  end
  if want > 0 then
    none, last = j == 0, math.max(first, id - 1)
  end
end

-- The member does not exist. A script whose first write frees memory may go on to use
-- some: so workers can drain a server that is over its limit.
redis.call('ZREM', processes, '')

-- A user that may add a job to the hash, but not remove it there or from its queue, would perform it twice. So the
-- script tries both removals first: the field '' does not exist, and LTRIM removes nothing here.
if f > 0 or #ARGV > 4 then
  local finished = redis.call('HDEL', working, '', unpack(ARGV, 5, math.min(#ARGV, 1004)))
  if finished > 0 then
    redis.pcall('INCRBY', processed, finished)
    redis.pcall('INCRBY', day, finished)
    redis.pcall('EXPIRE', day, '157680000') -- five years, as Sidekiq has it
  end
end
for i = 5, #KEYS do
  local queue = KEYS[i]
  if cut[queue] then
    redis.call('LTRIM', queue, 0, -1)
  end
end
if j > 0 then
  local time = redis.call('TIME')
  local over = time[1] * 1000 + math.floor(time[2] / 1000) + lease
  redis.call('ZADD', processes, string.format('%.0f', over), process)
end
if f > 0 then
  redis.call('PERSIST', working) -- the hash of a process whose jobs were put back expires
  redis.call('HSET', working, 'last', string.format('%.0f', last), unpack(fields, 1, math.min(f, 1000)))
  for i = 5, #KEYS do
    local queue = KEYS[i]
    if cut[queue] then
      redis.call('LTRIM', queue, 0, cut[queue])
    end
  end
end

if none then
  -- A call that has no job leaves its number as well, for a copy that comes late.
  redis.call('HSET', working, 'last', string.format('%.0f', last))
  if redis.call('HLEN', working) == 1 then
    redis.call('EXPIRE', working, 86400) -- a day; the next job ends that
  end
end
return {last, jobs}
