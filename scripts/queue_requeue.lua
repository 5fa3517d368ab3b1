--- QueueRequeue makes dead jobs ready again, as if they had never failed.
---
--- The caller names the jobs: a call for the oldest ones would move the next ones when it is
--- repeated. A job holds its unique name again, without an end. While another job holds the name,
--- the job stays dead and is reported.
---
--- Long because a name may be held, an entry may be there still, and a repeat has a receipt.
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
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('LLEN', ready)
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
--< part/queue_layout.lua
-- A queue of a later layout has a text in paused and in limit that no script of this one writes.
local paused = redis.call('HGET', control, 'paused')
if paused and paused ~= '1' then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
-->
redis.call('ZCARD', wake)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)

local moved, held, receipted = 0, {}, {}
local kept = redis.call('GET', receipt)
if kept then
  -- A job that stays dead is kept as a push keeps a duplicate: its position, and the id that holds its name.
  local first, list = string.match(kept, '^(%d+) (.*)$')
  --< part/queue_receipt_read.lua
  -- The duplicates of the first call: position and id of each, from list.
  local rows, n, from = {}, 0, 1
  while from <= #list do
    local _, last, position, size = string.find(list, '^(%d+):(%d+):', from)
    rows[n + 1], rows[n + 2] = tonumber(position), string.sub(list, last + 1, last + size)
    n, from = n + 2, last + size + 1
  end
  -->
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
    --< part/queue_dead_bytes.lua
    -- The size of the dead set changes by weight. A foreign text, to which Redis cannot add, stops no call: an
    -- audit mends it.
    local sum = redis.pcall('HINCRBY', control, 'dead_bytes', weight)
    if sum == 0 then
      redis.call('HDEL', control, 'dead_bytes')
    elseif type(sum) == 'table' and not string.find(sum.err, 'not an integer', 1, true)
        and not string.find(sum.err, 'overflow', 1, true) then
      error(sum)
    end
    -->
    redis.call('HDEL', failures, id, id .. '\n')
    redis.call('ZREM', dead, id)
    moved = moved + 1
  end
end
-- The receipt also says that nothing was moved: a late copy of this call must not touch a job that has died since.
redis.call('SET', receipt, moved .. ' ' .. table.concat(receipted), 'PX', 60000)
if moved > 0 then
  --< part/queue_wake_next.lua
  -- Notify the consumer that has waited longest. An entry whose wait is over is removed, and a
  -- name whose channel has no subscriber was that of a dead process: the next one has its turn. The
  -- channel begins with the key: no data chooses where the caller publishes. This is only a
  -- hint: where the user may not run one of the commands, all else is as before.
  local over = redis.pcall('ZREMRANGEBYSCORE', wake, '-inf', '(' .. now_ms)
  for _ = 1, type(over) == 'number' and 64 or 0 do
    local first = redis.pcall('ZPOPMIN', wake)
    if first.err or not first[1] or redis.pcall('PUBLISH', wake .. ':' .. first[1], '') ~= 0 then
      break
    end
  end
  -->
end
return {moved, held}
