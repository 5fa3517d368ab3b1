--- RetryLater moves a job that failed from its process to the retry set.
---
--- The time of the failure is the server's, and stands in the payload between its two
--- parts, in the encoding of the version. The score is that time and the delay.
---
---@contract dup-only  the job is in the retry set before it leaves the hash
---@retry    safe  a job that left the hash is not added again
---@slots    any  Sidekiq's keys have no tag in common
---@key      working        hash    number of a job to what it is
---@key      to             zset    Sidekiq's payloads, scored by Unix seconds
---@key      processed      string  Sidekiq's stat:processed
---@key      processed_day  string  the same of the day
---@key      failed         string  Sidekiq's stat:failed
---@key      failed_day     string  the same of the day
---@arg      id             int
---@arg      millis         bool   the time is whole milliseconds; else seconds with a fraction
---@arg      delay          s  min=0
---@args     part           bytes  max=2 bytes=536870912  the payload before the time, and after it
---@reply    (moved bool, at string)  moved: the job was still the process's; at: the score
---@cost     O(log n)
---@allow    W002 a job does not wait for a counter that is not one

local working, to = KEYS[1], KEYS[2]
local processed, processed_day, failed, failed_day = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, millis, delay = ARGV[1], ARGV[2], ARGV[3]
if not (delay + 0 >= 0) then
  error('delay must be 0 or more')
end
if #ARGV > 5 then
  error('part: at most 2')
end
local parts = {}
for i = 4, #ARGV do
  local part = ARGV[i]
  parts[#parts + 1] = part
end

if redis.call('HEXISTS', working, id) == 0 then
  return {0, ''}
end

--< part/failed_at.lua
--< part/retry_at.lua

--< part/failed_move.lua
--< part/count_failure.lua
return {1, at}
