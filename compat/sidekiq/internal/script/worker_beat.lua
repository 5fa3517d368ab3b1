--- WorkerBeat renews the lease of a process and names those whose leases are over.
---
---@contract all-or-nothing  one write
---@retry    safe  the lease is renewed again
---@slots    any  Sidekiq's keys have no tag in common
---@key      processes  zset  name of a process, scored by the end of its lease in Unix ms
---@arg      process    string
---@arg      lease      ms  min=1
---@arg      max        int  min=1  max=1000  how many names at most
---@reply    (now int, known bool, lapsed string[])  now: in us; known: it was there, so nobody has
---          taken all its jobs back
---@cost     O(log n + max)

local processes = KEYS[1]
local process, lease, max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not (lease and lease >= 1) then
  error('lease must be 1 or more')
end
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('ZSCORE', processes, process)
redis.call('ZADD', processes, string.format('%.0f', now + lease), process)
local lapsed = redis.call('ZRANGE', processes, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, max)
return {time[1] * 1000000 + time[2], known and 1 or 0, lapsed}
