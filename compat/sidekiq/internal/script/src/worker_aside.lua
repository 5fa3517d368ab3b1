--- WorkerAside moves a job of a process whose lease is over to the retry set or the dead
--- set: served next, it may end the process that performs it, as it did before.
---
--- In the retry set it is counted as WorkerReturn counts it. In the dead set its count
--- ends, and the set is trimmed by age and by number to what Sidekiq keeps.
---
---@contract dup-only  the job is in its set before it leaves the hash
---@retry    safe  a job that left the hash is not added again
---@slots    any  Sidekiq's keys have no tag in common
---@key      processes      zset    name of a process, scored by the end of its lease in Unix ms
---@key      working        hash    number of a job to what it is
---@key      rescued        hash    id of a job to how many processes died with it
---@key      to             zset    Sidekiq's payloads, scored by Unix seconds: those to retry, or the dead
---@key      processed      string  Sidekiq's stat:processed
---@key      processed_day  string  the same of the day
---@key      failed         string  Sidekiq's stat:failed
---@key      failed_day     string  the same of the day
---@arg      process        string
---@arg      id             int
---@arg      jid            string
---@arg      millis         bool   the time is whole milliseconds; else seconds with a fraction
---@arg      delay          s    min=0
---@arg      keep           s    min=0  dead jobs older than this are trimmed
---@arg      max            int  min=0  0: to is the retry set; else as many dead jobs are one too many
---@args     part           bytes  max=2 bytes=536870912  the payload before the time, and after it
---@reply    enum(gone=0, moved=1, alive=2)  gone: the job was not the process's; alive: the lease is not over
---@cost     O(log n + k) for k trimmed, a thousand at most
---@allow    V002 processed, processed_day, failed, failed_day: a job does not wait for a counter
---@allow    W002 a job does not wait for a counter that is not one

local processes, working, rescued, to = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local processed, processed_day, failed, failed_day = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local process, id, jid, millis = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delay, keep, max = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if not (delay and delay >= 0) then
  error('delay must be 0 or more')
end
if not (keep and keep >= 0) then
  error('keep must be 0 or more')
end
if not (max and max >= 0) then
  error('max must be 0 or more')
end
if #ARGV > 9 then
  error('part: at most 2')
end
local parts = {}
for i = 8, #ARGV do
  local part = ARGV[i]
  parts[#parts + 1] = part
end

--< part/failed_at.lua
local over = redis.call('ZSCORE', processes, process)
if over and tonumber(over) > time[1] * 1000 + time[2] / 1000 then
  return 2
end
if redis.call('HEXISTS', working, id) == 0 then
  return 0
end

local full = redis.call('HLEN', rescued) >= 10000
--< part/retry_at.lua

local spare = 0
if max > 0 then
  --< part/trim_dead.lua
end
--< part/failed_move.lua
if max > 0 then
  redis.pcall('HDEL', rescued, jid)
  if spare > 0 then
    redis.call('ZREMRANGEBYRANK', to, 0, spare - 1)
  end
else
  local jids = { jid }
  --< part/count_rescue.lua
end
--< part/count_failure.lua
return 1
