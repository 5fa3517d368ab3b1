--- Ack finishes leased jobs and removes them.
---
--- For each job it returns one verdict, in order. Acked: the job is removed. Lost: the lease has
--- ended, and the job went to another worker or back to the queue. Gone: the queue does not know
--- the job any more, because it was finished before.
---
--- Long because a finished job leaves a mark, a unique name and options behind it.
---
---@contract dup-only  an error half-way can leave a job to be delivered again, never lose one
---@retry    safe  a job already acked is answered gone
---@guard    guard.lua
---@key      leases    zset  id, scored by the end of its lease in us
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries
---@key      unique    hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry    zset  name of a unique key, scored by its end in ms
---@key      options   hash  id to the options of a job, which push.lua wrote
---@key      finished  zset  ids of finished jobs, scored by that time in ms
---@arg      known     ms  min=60000  how long an id that its caller chose is known after its end
---@args     job  (id string, fence int)  max=1000  fence: as take or the last extend returned it
---@reply    int[]  0 lost, 1 acked, 2 gone
---@cost     O(log n) for each job, n being the number of leases

local leases, bodies, failures, unique, expiry, options = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local finished, known, kept_at = KEYS[7], tonumber(ARGV[1]), nil
if #ARGV > 2001 then
  error('job: at most 1000')
end
--< part/known.lua

redis.call('HLEN', bodies)
redis.call('ZCARD', finished)
local failed = redis.call('HLEN', failures) > 0
local optioned = redis.call('HLEN', options) > 0
redis.call('ZCARD', expiry)
local holding = redis.call('HLEN', unique) > 0

local ids, fences, n = {}, {}, 0
for i = 2, #ARGV, 2 do
  local id, fence = ARGV[i], tonumber(ARGV[i + 1])
  n = n + 1
  ids[n], fences[n] = id, fence
end

local scores = redis.call('ZMSCORE', leases, unpack(ids, 1, n))
local verdicts, gone, g = {}, {}, 0
for i = 1, n do
  local id, score = ids[i], scores[i]
  if score and tonumber(score) == fences[i] then
    verdicts[i] = 1
    g = g + 1
    gone[g] = id
  elseif redis.call('HEXISTS', bodies, id) == 1 then
    verdicts[i] = 0
  else
    verdicts[i] = 2
  end
end

if holding then
  for _, id in ipairs(gone) do
    --< part/release_name.lua
  end
end

if g > 0 then
  -- The member does not exist. A script whose first write frees memory may go on to use some.
  redis.call('ZREM', leases, '')
  --< part/now_ms.lua
  local marks = {}
  for i = 1, g do
    local id = gone[i]
    --< part/mark_time.lua
    marks[2 * i - 1], marks[2 * i] = at, id
  end
  for i = 1, 2 * g, 1000 do
    redis.call('ZADD', finished, unpack(marks, i, math.min(i + 999, 2 * g)))
  end
  redis.call('HDEL', bodies, unpack(gone, 1, g))
  if failed then
    local reasons = {}
    for i = 1, g do
      reasons[i] = gone[i] .. '\n'
    end
    redis.call('HDEL', failures, unpack(gone, 1, g))
    redis.call('HDEL', failures, unpack(reasons, 1, g))
  end
  if optioned then
    redis.call('HDEL', options, unpack(gone, 1, g))
  end
  -- The lease goes last: a job without a body is dropped by the next take.
  redis.call('ZREM', leases, unpack(gone, 1, g))
  --< part/finished.lua
end
return verdicts
