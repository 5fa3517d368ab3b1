--- Requeue makes dead jobs ready again, as if they had never failed.
---
--- The caller names the jobs: a call for the oldest ones would move the next ones when it is
--- repeated. A job holds its unique name again, without an end. While another job holds the name,
--- the job stays dead and is reported.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@allow    V002 control: dead_bytes can count a job twice, until an audit repairs it
---@retry    safe  the same receipt gives the same answer again, for a minute
---@guard    guard.lua
---@key      dead      zset  id, scored by the time of its death in ms
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      failures  hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key      control   hash  paused, limit, dead_bytes, dead_limits
---@key      wake      zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      unique    hash  k:name to the id that holds it, j:id to the name of that job
---@key      expiry    zset  name of a unique key, scored by its end in ms
---@key      receipt   string  the answer to this call, kept for a repeat
---@args     id  string  max=200
---@error    LAYOUT  the queue has a later layout
---@reply    (moved int, held (id string, holder string)[])  held: jobs that stay dead
---@cost     O(log n) for each job

local dead, ready, bodies, failures, control, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local unique, expiry, receipt = KEYS[7], KEYS[8], KEYS[9]
if #ARGV > 200 then
  error('id: at most 200')
end

--< part/now_ms.lua

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
--< part/layout.lua
redis.call('ZCARD', wake)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)

local moved, held, receipted = 0, {}, {}
local kept = redis.call('GET', receipt)
if kept then
  -- A job that stays dead is kept as a push keeps a duplicate: its position, and the id that holds its name.
  local first, list = string.match(kept, '^(%d+) (.*)$')
  --< part/receipt_read.lua
  for i = 1, #rows, 2 do
    held[i], held[i + 1] = ARGV[rows[i]], rows[i + 1]
  end
  return {tonumber(first), held}
end

for i = 1, #ARGV do
  local id = ARGV[i]
  local died = redis.call('ZSCORE', dead, id)
  local name = died and redis.call('HGET', unique, 'j:' .. id)
  local holder = name and redis.call('HGET', unique, 'k:' .. name)
  if holder and holder ~= id and tonumber(redis.call('ZSCORE', expiry, name) or 0) > tonumber(now_ms) then
    held[#held + 1], held[#held + 2] = id, holder
    receipted[#receipted + 1] = i .. ':' .. #holder .. ':' .. holder
  elseif died then
    if name then
      redis.call('HSET', unique, 'k:' .. name, id)
      redis.call('ZADD', expiry, '9007199254740991', name)
    end
    -- A job that was buried while ready may have its entry still: then that one counts again.
    if string.sub(redis.call('HGET', failures, id) or '', 1, 1) ~= 'b' then
      redis.call('RPUSH', ready, now_ms .. ':' .. id)
    end
    local weight = 0 - redis.call('HSTRLEN', bodies, id)
    --< part/dead_bytes.lua
    redis.call('HDEL', failures, id, id .. '\n')
    redis.call('ZREM', dead, id)
    moved = moved + 1
  end
end
-- The receipt also says that nothing was moved: a late copy of this call must not touch a job that has died since.
redis.call('SET', receipt, moved .. ' ' .. table.concat(receipted), 'PX', 60000)
if moved > 0 then
  --< part/wake_next.lua
end
return {moved, held}
