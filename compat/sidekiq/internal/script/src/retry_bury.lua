--- RetryBury moves a job that is given up from its process to the dead set, and trims
--- that by age and by number to what Sidekiq keeps.
---
--- The time of the failure is the server's. In the payload it stands between its two
--- parts, in the encoding of the version. Without a time the job was not performed, and counts
--- as no failure.
---
---@contract dup-only  the job is in the dead set before it leaves the hash
---@retry    safe  a job that left the hash is not added again
---@slots    any  Sidekiq's keys have no tag in common
---@key      working        hash    number of a job to what it is
---@key      to             zset    Sidekiq's payloads, scored by Unix seconds
---@key      processed      string  Sidekiq's stat:processed
---@key      processed_day  string  the same of the day
---@key      failed         string  Sidekiq's stat:failed
---@key      failed_day     string  the same of the day
---@arg      id             int
---@arg      form           enum(none=0, seconds=1, millis=2)  none: the payload has no time, and is one part
---@arg      keep           s    min=1  dead jobs older than this are trimmed
---@arg      max            int  min=1  as many dead jobs are one too many: Sidekiq keeps one less
---@args     part           bytes  max=2 bytes=536870912  the payload before the time, and after it
---@reply    bool  the job was still the process's
---@cost     O(log n + k) for k trimmed, a thousand at most
---@allow    V002 processed, processed_day, failed, failed_day: a job does not wait for a counter
---@allow    W002 a job does not wait for a counter that is not one

local working, to = KEYS[1], KEYS[2]
local processed, processed_day, failed, failed_day = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, form, keep, max = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if not (keep and keep >= 1) then
  error('keep must be 1 or more')
end
if not (max and max >= 1) then
  error('max must be 1 or more')
end
if #ARGV > 6 then
  error('part: at most 2')
end
local parts = {}
for i = 5, #ARGV do
  local part = ARGV[i]
  parts[#parts + 1] = part
end

if redis.call('HEXISTS', working, id) == 0 then
  return 0
end

--< part/failed_at.lua
local at, stamp = time[1] .. '.' .. fraction, ''
if form == '1' then
  stamp = at
elseif form == '2' then
  stamp = time[1] .. string.sub(micros, 1, 3)
end

local spare = 0
--< part/trim_dead.lua
--< part/failed_move.lua
if spare > 0 then
  redis.call('ZREMRANGEBYRANK', to, 0, spare - 1)
end
if form == '0' then
  return 1
end
--< part/count_failure.lua
return 1
