--- QueueAck finishes leased jobs and removes them.
---
--- For each job one verdict, in order: acked; lost, when the lease has ended and
--- the job went to another worker or back to the queue; gone, when the queue does
--- not know the job any more, because it was finished before.
---
---@contract dup-only  an error half-way can leave a job to be delivered again, never lose one
---@retry    safe  a job already acked is answered gone
---@guard    guard.lua
---@key      leases    zset  id, scored by the end of its lease in us
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries
---@key      unique    hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry    zset  name of a unique key, scored by its end in ms
---@args     job  (id string, fence int)  max=1000  fence: as take or the last extend returned it
---@reply    int[]  0 lost, 1 acked, 2 gone
---@cost     O(log n) for each job, n being the number of leases

local leases, bodies, failures, unique, expiry = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if #ARGV > 2000 then
  error('job: at most 1000')
end

redis.call('HLEN', bodies)
local failed = redis.call('HLEN', failures) > 0
redis.call('ZCARD', expiry)
local holding = redis.call('HLEN', unique) > 0

local ids, fences, n = {}, {}, 0
for i = 1, #ARGV, 2 do
  local id, fence = ARGV[i], tonumber(ARGV[i + 1])
  n = n + 1
  ids[n], fences[n] = id, fence
end

local scores = redis.call('ZMSCORE', leases, unpack(ids, 1, n))
local verdicts, done, d = {}, {}, 0
for i = 1, n do
  local id, score = ids[i], scores[i]
  if score and tonumber(score) == fences[i] then
    verdicts[i] = 1
    d = d + 1
    done[d] = id
  elseif redis.call('HEXISTS', bodies, id) == 1 then
    verdicts[i] = 0
  else
    verdicts[i] = 2
  end
end

if holding then
  for _, id in ipairs(done) do
    --< part/queue_release_name.lua
    -- The job gives up its unique name, unless a later job has taken the name over.
    local name = redis.call('HGET', unique, 'j:' .. id)
    if name then
      if redis.call('HGET', unique, 'k:' .. name) == id then
        redis.call('ZREM', expiry, name)
        redis.call('HDEL', unique, 'k:' .. name)
      end
      redis.call('HDEL', unique, 'j:' .. id)
    end
    -->
  end
end

-- The lease goes last: a job without a body is dropped by the next take.
if d > 0 then
  redis.call('HDEL', bodies, unpack(done, 1, d))
  if failed then
    local reasons = {}
    for i = 1, d do
      reasons[i] = done[i] .. '\n'
    end
    redis.call('HDEL', failures, unpack(done, 1, d))
    redis.call('HDEL', failures, unpack(reasons, 1, d))
  end
  redis.call('ZREM', leases, unpack(done, 1, d))
end
return verdicts
