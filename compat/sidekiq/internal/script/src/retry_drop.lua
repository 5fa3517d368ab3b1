--- RetryDrop finishes a job that failed and is not tried again.
---
---@contract all-or-nothing  one write, and counters
---@retry    safe  it is counted once
---@slots    any  Sidekiq's keys have no tag in common
---@key      working        hash    number of a job to what it is
---@key      processed      string  Sidekiq's stat:processed
---@key      processed_day  string  the same of the day
---@key      failed         string  Sidekiq's stat:failed
---@key      failed_day     string  the same of the day
---@arg      id             int
---@reply    bool  the job was still the process's
---@cost     O(1)
---@allow    W002 a job does not wait for a counter that is not one

local working = KEYS[1]
local processed, processed_day, failed, failed_day = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id = ARGV[1]

if redis.call('HDEL', working, id) == 0 then
  return 0
end
--< part/count_failure.lua
return 1
