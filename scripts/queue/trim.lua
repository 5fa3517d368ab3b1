--- Trim removes the oldest dead jobs, as many as exceed a limit, and can store the limits for other callers.
---
--- Long because a job that was buried while ready keeps its id until its entry is dropped.
---
---@contract dup-only  an error half-way leaves some of them
---@retry    resume  it goes on where it stopped
---@guard    guard.lua
---@key      dead      zset  id, scored by the time of its death in ms
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      control   hash  paused, limit, dead_bytes, dead_limits
---@key      options   hash  id to the options of a job, which push.lua wrote
---@key      finished  zset  ids of finished jobs, scored by that time in ms
---@key      unique    hash  k:name to the id that holds it, j:id to the name it holds
---@arg      keep      int  min=-1  the most jobs that stay, -1 for any number
---@arg      bytes     int  min=-1  the most bytes of bodies that stay, -1 for any number
---@arg      age       int  min=-1  ms after which a dead job goes, -1 for never
---@arg      max       int  min=0 max=1000  the most jobs to remove
---@arg      limits    enum(given=0,stored=1,store=2)  given: those of the call; stored: those of control, or of the
---          call where control has none; store: those of the call, which control gets
---@arg      known     ms  min=60000  how long an id that its caller chose is known after its end
---@allow    V002 control: dead_bytes can count a job twice, until an audit repairs it
---@allow    V002 finished: a job that no limit reaches after that stays dead
---@error    LAYOUT  the queue has a later layout
---@reply    (removed int, left int, bytes int)  bytes: of the bodies that stay
---@cost     O(log n) for each job removed

local dead, bodies, failures, control, options, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local unique, limits, known, kept_at = KEYS[7], ARGV[5], tonumber(ARGV[6]), nil
local keep, bytes, age, max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (max and max >= 0 and max <= 1000) then
  error('max must be 0 to 1000')
end
if not (keep and bytes and age and math.min(keep, bytes, age) >= -1) then
  error('keep, bytes and age must be -1 or more')
end
--< part/known.lua

--< part/now_ms.lua
local now = tonumber(now_ms)

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('HLEN', options)
redis.call('ZCARD', finished)
redis.call('HLEN', unique)
--< part/layout.lua
local size = tonumber(string.match(redis.call('HGET', control, 'dead_bytes') or '', '^%-?%d+$')) or 0
local left, removed = redis.call('ZCARD', dead), 0
local stored = limits ~= '0' and redis.call('HGET', control, 'dead_limits')
local named = string.format('%.0f %.0f %.0f', keep, bytes, age)
if limits == '2' and stored ~= named then
  -- The member does not exist. A script whose first write frees memory may go on to use some.
  redis.call('ZREM', dead, '')
  redis.call('HSET', control, 'dead_limits', named)
elseif limits == '1' and stored then
  -- A foreign text bounds nothing: what is deleted does not come back.
  keep, bytes, age = string.match(stored, '^(%-?%d+) (%-?%d+) (%-?%d+)$')
  keep, bytes, age = tonumber(keep or -1), tonumber(bytes or -1), tonumber(age or -1)
end
-- The oldest is read alone: most calls find nothing to remove.
local first = redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')
local function over(died)
  return keep >= 0 and left > keep or bytes >= 0 and size > bytes or age >= 0 and now - died > age
end
if max == 0 or not first[1] or not over(tonumber(first[2])) then
  return {0, left, size}
end

local found = redis.call('ZRANGE', dead, 0, max - 1, 'WITHSCORES')
local g = 0
-- The member does not exist. A script whose first write frees memory may go on to use some.
redis.call('ZREM', dead, '')
for i = 1, #found, 2 do
  local id, died = found[i], tonumber(found[i + 1])
  if not over(died) then
    break
  end
  local weight = 0 - redis.call('HSTRLEN', bodies, id)
  --< part/dead_bytes.lua
  -- A job that was buried while ready may have its entry still.
  local entry = string.find(redis.call('HGET', failures, id) or '', '^[bx]')
  redis.call('HDEL', failures, id .. '\n')
  --< part/mark_time.lua
  redis.call('ZADD', finished, at, id)
  --< part/remove_body.lua
  redis.call('HDEL', options, id)
  redis.call('HDEL', unique, 'j:' .. id)
  redis.call('ZREM', dead, id)
  size, left, removed = size + weight, left - 1, removed + 1
  g = g + 1
end
--< part/finished.lua
return {removed, left, size}
