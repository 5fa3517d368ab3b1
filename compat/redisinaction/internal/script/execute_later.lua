--- ExecuteLater adds tasks: those with a delay to the delayed ones, the others to the end of the queue.
---
--- The score of a delayed task is the time at which it is due. Tasks with the same
--- delay come a microsecond apart, in their order: equal scores would be ordered by
--- the random ids.
---
---@contract all-or-nothing
---@retry    safe  the receipt holds the first answer
---@slots    any  the names are those of Redis in Action
---@key      delayed  zset    items, scored by due time in s
---@key      queue    list    items, oldest at the head
---@key      receipt  string  the answer, kept for a repeat of this call
---@arg      keep     ms  min=1  how long the receipt is kept
---@args     item     (delay int, body bytes)  max=1000  delay in us, 0 for at once
---@reply    (ready int, scheduled int, now int)  now in us
---@allow    W002 an undo goes as far as it can
---@allow    V002 delayed: an item has an id of its own, and is not among them before
---@cost     O(log n) for each delayed task, O(1) for each other

local delayed, queue, receipt = KEYS[1], KEYS[2], KEYS[3]
local keep = ARGV[1]
if #ARGV > 2001 then
  error('item: at most 1000')
end

local first = redis.call('GET', receipt)
if first then
  local r, s, at = string.match(first, '^(%d+) (%d+) (%d+)$')
  return {tonumber(r), tonumber(s), tonumber(at)}
end

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
redis.call('LLEN', queue) -- a key of another type stops the script here
redis.call('ZCARD', delayed)

local ready, scores, added, r, s = {}, {}, {}, 0, 0
for i = 2, #ARGV, 2 do
  local delay, body = tonumber(ARGV[i]), ARGV[i + 1]
  if delay > 0 then
    local due = time[1] + (time[2] + delay + s) / 1000000
    scores[2 * s + 1], scores[2 * s + 2] = string.format('%.6f', due), body
    s = s + 1
    added[s] = body
  else
    r = r + 1
    ready[r] = body
  end
end

-- The receipt is written first, because it is new. SET with a past end takes it back, so a user that may write the
-- receipt may also take it back. Delayed tasks are taken back by ZREM, which the script tries before it adds any.
redis.call('SET', receipt, r .. ' ' .. s .. ' ' .. now, 'PX', keep)

local failure
local function write(command, key, list)
  for i = 1, #list, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, #list)))
      failure = type(done) == 'table' and done.err
    end
  end
end
if r > 0 then
  write('ZREM', delayed, {added[1]})
end
write('ZADD', delayed, scores)
write('RPUSH', queue, ready)

-- RPUSH is the last write and is one command: there is nothing in the queue to take back.
if failure then
  for i = 1, s do
    redis.pcall('ZREM', delayed, added[i])
  end
  redis.pcall('SET', receipt, '', 'PXAT', 1)
  error({err = failure})
end
return {r, s, tonumber(now)}
