--- PushOne adds one ready job whose id was made for this call.
---
--- This is the short script for the usual push. The body is the receipt: a repeat finds it, or the
--- mark that the job left when it was finished, and adds nothing. Nothing else of the call is
--- stored. If the queue has a limit, the script adds nothing: use push.lua. The jobs of
--- several callers for one queue are looked up and added together.
---
--- Long because a job alone, which is the usual call, has a way without tables.
---
---@contract all-or-nothing  a job that cannot be queued loses its body again
---@retry    safe  for a minute: a repeat finds the body, or the mark of the finished job
---@guard    guard.lua
---@merge    max=64
---@key      ready     list  entries enqueued_at_ms:id, oldest at the head
---@key      bodies    hash  id to body
---@key      control   hash  paused, limit, dead_bytes, dead_limits
---@key      wake      zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      finished  zset  ids of finished jobs, scored by that time in ms
---@arg      id    string
---@arg      body  bytes
---@reply    (limited bool, now time.ms)  limited: the queue has a limit, and nothing was added
---@cost     O(1)
---@allow    W002 an undo goes as far as it can

if #KEYS > 320 then
  error('row: at most 64')
end
--< part/now_ms.lua

local replies, wakes = {0, now_ms}, {}
if #KEYS == 5 then -- the usual call
  local ready, bodies, control, wake, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  local id, body = ARGV[1], ARGV[2]
  local special = redis.call('EXISTS', control, wake) > 0
  local waiting = special and redis.call('ZCARD', wake) > 0
  local known = redis.call('ZSCORE', finished, id)
  if special and not known and redis.call('HEXISTS', control, 'limit') == 1 then
    return {1 - redis.call('HEXISTS', bodies, id), now_ms} -- a limit that was set since is none of a repeat
  end
  if not known and redis.call('HSETNX', bodies, id, body) == 1 then
    local queued = redis.pcall('RPUSH', ready, now_ms .. ':' .. id)
    if type(queued) == 'table' then
      redis.pcall('HDEL', bodies, id)
      error(queued)
    end
    wakes[1] = waiting and 4 or nil
  end
else -- the jobs of a queue are looked up and added together
  local rows, order = {}, {}
  for i = 1, #KEYS, 5 do
    local ready = KEYS[i]
    if not rows[ready] then
      rows[ready], order[#order + 1] = {}, i
    end
    table.insert(rows[ready], 2 * (i - 1) / 5)
  end
  for _, i in ipairs(order) do
    local ready, bodies, control, wake, finished = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
    local special = redis.call('EXISTS', control, wake) > 0
    local waiting = special and redis.call('ZCARD', wake) > 0
    local limited = special and redis.call('HEXISTS', control, 'limit') or 0
    local ids = {}
    for n, row in ipairs(rows[ready]) do
      ids[n] = ARGV[row + 1]
    end
    local marks = redis.call('ZMSCORE', finished, unpack(ids, 1, math.min(#ids, 64)))
    local known = redis.call('HMGET', bodies, unpack(ids, 1, math.min(#ids, 64)))
    local fields, entries, added = {}, {}, 0
    for n, row in ipairs(rows[ready]) do
      local id, body = ARGV[row + 1], ARGV[row + 2]
      local new = not (known[n] or marks[n] or known[id])
      replies[row + 1], replies[row + 2] = new and limited or 0, now_ms
      if new and limited == 0 then
        known[id], added = true, added + 1 -- a row may be there twice
        fields[2 * added - 1], fields[2 * added], entries[added] = id, body, now_ms .. ':' .. id
      end
    end
    if added > 0 then
      redis.call('HSET', bodies, unpack(fields, 1, math.min(#fields, 128)))
      local queued = redis.pcall('RPUSH', ready, unpack(entries, 1, math.min(#entries, 64)))
      if type(queued) == 'table' then
        for n = 1, added do
          redis.pcall('HDEL', bodies, fields[2 * n - 1])
        end
        error(queued)
      end
      wakes[#wakes + 1] = waiting and i + 3 or nil
    end
  end
end
for _, i in ipairs(wakes) do
  local wake = KEYS[i]
  --< part/wake_next.lua
end
return replies
