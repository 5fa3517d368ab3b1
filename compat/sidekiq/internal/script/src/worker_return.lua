--- WorkerReturn puts jobs of a process back where they are served next.
---
--- A process that ends does so for its own jobs, and any for those of one whose lease
--- is over. The process is forgotten with its last job, and leaves the Busy page in the
--- same step: without a lease no other process finds it and could remove it later.
---
--- The highest number of its jobs is kept for a day, so that a take that arrives late takes
--- nothing: a copy of an earlier one, and after the end of the process any.
---
--- A job of a process whose lease is over is counted by its id, once. The counts are
--- kept for three days after the last, and begin anew beyond 10 000 of them.
---
---@contract dup-only  a job is in its queue before it leaves the hash
---@retry    safe  a job that left the hash is not put back again
---@slots    any  Sidekiq's keys have no tag in common
---@key      processes  zset  name of a process, scored by the end of its lease in Unix ms
---@key      working    hash  number of a job to the length of its queue's key, a colon, that key and the payload;
---          last: the highest number
---@key      queues     set   Sidekiq's names of all queues
---@key      queue      list  the payload at the tail is served first
---@key      page       set   Sidekiq's names of all processes
---@key      shown      hash  what the Busy page shows of the process
---@key      signals    list  what its buttons have left for the process
---@key      rescued    hash  id of a job to how many processes died with it
---@keys     running    hash  max=2  the jobs that the page shows, in each form that its version has
---@arg      process    string
---@arg      lapsed     bool    only if the lease of the process is over
---@arg      name       string  of the queue
---@args     job        (job int, jid string)  max=1000  numbers and ids of jobs of this queue, the one to be
---          served first at the end
---@reply    (state enum(returned=0, alive=1), returned int, left int)  left: jobs in the hash
---@cost     O(k)
---@allow    W002 a job does not wait for a counter that is not one

local processes, working, queues, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local page, shown, signals, rescued = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local process, lapsed, name = ARGV[1], ARGV[2], ARGV[3]
if #KEYS > 10 then
  error('running: at most 2')
end
if #ARGV > 2003 then
  error('job: at most 1000')
end

-- The number of the last job is no job.
local left = redis.call('HLEN', working) - redis.call('HEXISTS', working, 'last')
local time = redis.call('TIME')
local over = redis.call('ZSCORE', processes, process)
if lapsed == '1' and over and tonumber(over) > time[1] * 1000 + time[2] / 1000 then
  return {1, 0, left}
end

redis.call('SISMEMBER', page, process) -- another kind of key is refused before the first write
local full = redis.call('HLEN', rescued) >= 10000
local label = #queue .. ':' .. queue
local payloads, ids, jids, n = {}, {}, {}, 0
for i = 4, #ARGV, 2 do
  local job, jid = ARGV[i], ARGV[i + 1]
  local kept = redis.call('HGET', working, job)
  if kept and string.sub(kept, 1, #label) == label then
    n = n + 1
    payloads[n], ids[n], jids[n] = string.sub(kept, #label + 1), job, jid
  end
end

if n > 0 then
  redis.call('LLEN', queue)
  -- The field does not exist. A script whose first write needs no memory may use some after it, so no job stays with
  -- a dead process because the server is full. A user that may not remove a job from the hash adds none to the queue.
  redis.call('HDEL', working, '')
  redis.call('SADD', queues, name)
  redis.call('RPUSH', queue, unpack(payloads, 1, math.min(n, 1000)))
  left = left - redis.call('HDEL', working, unpack(ids, 1, math.min(n, 1000)))
  if lapsed == '1' then
    --< part/count_rescue.lua
  end
end
if left == 0 then
  redis.call('SREM', page, process)
  redis.call('UNLINK', shown, signals)
  for i = 9, #KEYS do
    local running = KEYS[i]
    redis.call('UNLINK', running)
  end
  if lapsed == '0' then
    redis.call('HSET', working, 'last', '9007199254740992') -- no number of a job is above it
  end
  redis.call('EXPIRE', working, 86400) -- a day
  redis.call('ZREM', processes, process)
end
return {0, n, left}
