--- WorkerBeat renews the lease of a process, and names its jobs that are not its any
--- more and the processes whose leases are over.
---
--- Whether a job was taken back is read from the hash, which this call does not write:
--- each later heartbeat says it too, whatever became of this one's reply.
---
---@contract all-or-nothing  one write
---@retry    safe  the lease is renewed again
---@slots    any  Sidekiq's keys have no tag in common
---@key      processes  zset  name of a process, scored by the end of its lease in Unix ms
---@key      working    hash  number of a job to what it is
---@arg      process    string
---@arg      lease      ms  min=1
---@arg      skip       int  min=0  how many processes to pass over, of those whose leases are over
---@arg      max        int  min=1  max=1000  how many names at most
---@args     job        int  max=500  numbers of the jobs that the process has
---@reply    (lapsed string[], gone int[])  gone: jobs that are not in the hash: they are finished, or
---          another process has put them back
---@cost     O(log n + skip + max + k)

local processes, working = KEYS[1], KEYS[2]
local process, lease, skip, max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (lease and lease >= 1) then
  error('lease must be 1 or more')
end
if not (skip and skip >= 0) then
  error('skip must be 0 or more')
end
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end
if #ARGV > 504 then
  error('job: at most 500')
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone, n = {}, 0
for i = 5, #ARGV do
  local job = ARGV[i]
  if redis.call('HEXISTS', working, job) == 0 then
    n = n + 1
    gone[n] = tonumber(job)
  end
end

redis.call('ZADD', processes, string.format('%.0f', now + lease), process)
local ends, from = string.format('%.0f', now), string.format('%.0f', skip)
local lapsed = redis.call('ZRANGE', processes, '-inf', ends, 'BYSCORE', 'LIMIT', from, max)
return {lapsed, gone}
