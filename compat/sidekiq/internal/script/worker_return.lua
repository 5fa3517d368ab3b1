--- WorkerReturn puts jobs of a process back where they are served next.
---
--- A process that ends does so for its own jobs, and any for those of one whose lease
--- is over. The process is forgotten with its last job, and leaves the Busy page in the
--- same step: without a lease no other process finds it and could remove it later.
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
---@key      running    hash  the jobs that it shows
---@key      signals    list  what its buttons have left for the process
---@arg      process    string
---@arg      lapsed     bool    only if the lease of the process is over
---@arg      name       string  of the queue
---@args     job        int  max=1000  numbers of jobs of this queue, the one to be served first at the end
---@reply    (state enum(returned=0, alive=1), returned int, left int)  left: jobs in the hash
---@cost     O(k)

local processes, working, queues, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local page, shown, running, signals = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local process, lapsed, name = ARGV[1], ARGV[2], ARGV[3]
if #ARGV > 1003 then
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
local label = #queue .. ':' .. queue
local payloads, ids, n = {}, {}, 0
for i = 4, #ARGV do
  local job = ARGV[i]
  local kept = redis.call('HGET', working, job)
  if kept and string.sub(kept, 1, #label) == label then
    n = n + 1
    payloads[n], ids[n] = string.sub(kept, #label + 1), job
  end
end

if n > 0 then
  redis.call('LLEN', queue)
  -- The member does not exist. A script whose first write frees memory may go on to
  -- use some: no job stays with a dead process because the server is full.
  redis.call('ZREM', processes, '')
  redis.call('SADD', queues, name)
  redis.call('RPUSH', queue, unpack(payloads, 1, math.min(n, 1000)))
  left = left - redis.call('HDEL', working, unpack(ids, 1, math.min(n, 1000)))
end
if left == 0 then
  redis.call('SREM', page, process)
  redis.call('UNLINK', working, shown, running, signals)
  redis.call('ZREM', processes, process)
end
return {0, n, left}
