--- Decline moves a job that its process cannot begin to the scheduled set, as it is. No failure
--- is counted.
---
--- The job waits as long as it has been declined in a row, from a second to a minute. A row ends
--- an hour after its last time. A job that has been declined for its patience stays where it is.
---
---@contract dup-only  the job is in the scheduled set before it leaves the hash
---@retry    safe  a job that left the hash is not added again
---@slots    any  Sidekiq's keys have no tag in common
---@key      working   hash    number of a job to what it is
---@key      schedule  zset    Sidekiq's payloads, scored by Unix seconds
---@key      since     string  the first time of the row in Unix ms
---@arg      id        int
---@arg      patience  ms     min=1
---@arg      payload   bytes
---@reply    (state enum(gone=0, waits=1, over=2), since int)  gone: it was not the process's; over: it has been
---          declined for its patience; since: the first time in Unix ms
---@cost     O(log n)

local working, schedule, since = KEYS[1], KEYS[2], KEYS[3]
local id, patience, payload = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not (patience and patience >= 1) then
  error('patience must be 1 or more')
end

if redis.call('HEXISTS', working, id) == 0 then
  return {0, 0}
end

local time = redis.call('TIME')
local micros = tonumber(time[2])
local now_ms = time[1] * 1000 + math.floor(micros / 1000)
local first = math.min(now_ms, tonumber(redis.call('GET', since)) or now_ms)
local age = now_ms - first
if age >= patience then
  return {2, first}
end
local delay = math.max(math.min(math.max(math.min(age, 60000), 1000), patience - age), 1)

-- A set has each text once, and two jobs may have the same. White space behind a job is no part of it.
local bits = micros
while redis.call('ZSCORE', schedule, payload) do
  payload = payload .. (bits % 2 == 0 and ' ' or '\t')
  bits = math.floor(bits / 2)
end

-- The field does not exist. A script whose first write frees memory may go on to use
-- some: a job leaves its worker also when the server is full.
redis.call('HDEL', working, '')
redis.call('SET', since, string.format('%.0f', first), 'PX', 3600000) -- an hour
redis.call('ZADD', schedule, string.format('%.6f', time[1] + (micros + delay * 1000) / 1000000), payload)
redis.call('HDEL', working, id)
return {1, first}
