--- PushOnce is Push under a receipt: a repeat adds nothing and has the first result.
---
--- A job of a queue has enqueued_at by the server's clock, as its last field, unless it
--- came with one. A job for later that is due by then goes into its queue.
---
--- Long because the plan of a batch is read before anything is written, and its receipt kept.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    safe  the receipt says that the jobs are in
---@slots    any  the keys are Sidekiq's, which have no tag
---@key      receipt   string  the result, kept for a repeat of this call
---@key      names     set   names of the queues
---@key      schedule  zset  payloads, scored by due time in float seconds
---@keys     queue     list  max=1000  payloads, the newest at the head
---@arg      keep      ms  min=1  how long the receipt is kept
---@arg      skip      int  min=0  the bytes before the name in a queue's key
---@arg      clock     enum(seconds=0, milliseconds=1)  how enqueued_at is written
---@arg      plan      string  for each run of jobs place:count:kind; place is of the queue, from 1;
---          kind is empty for jobs to stamp, = for jobs as they are, for later ones due in seconds,
---          or + and the seconds from now
---@arg      digest    string  what the jobs are, without spaces
---@args     job       bytes  max=1000  a payload; without its last brace unless its kind is =
---@error    REUSED  the receipt belongs to jobs of another digest
---@reply    (ready int, scheduled int, now int)  now: in us
---@cost     O(log n) for each scheduled job, O(1) for each ready one and for each queue
---@allow    W002 an undo goes as far as it can

local receipt, names, schedule = KEYS[1], KEYS[2], KEYS[3]
local keep, skip, clock, plan, digest = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
if #KEYS > 1003 then
  error('queue: at most 1000')
end
if not (skip and skip >= 0) then
  error('skip must be 0 or more')
end
if #ARGV > 1005 then
  error('job: at most 1000')
end

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first then
  local was_ready, was_scheduled, at, was = string.match(first, '^(%d+) (%d+) (%d+) (%S*)$')
  -- The jobs of the first call were other ones: its answer would say that these are in.
  if was ~= digest then
    return redis.error_reply('REUSED the receipt belongs to other jobs')
  end
  return {tonumber(was_ready), tonumber(was_scheduled), tonumber(at)}
end

-- A key of the wrong type stops the script here, while nothing is written; that of names
-- does at its first write.
redis.call('ZCARD', schedule)
for i = 4, #KEYS do
  local queue = KEYS[i]
  redis.call('LLEN', queue)
end

--< part/enqueued_at.lua
local stamped = ',"enqueued_at":' .. stamp .. '}'

--< part/push_once_sort.lua
local ready = #ARGV - 5 - l / 2

-- A write can be refused by an ACL that allows some of the keys. The name of a queue
-- comes before its jobs: neither workers nor a clear find a queue without it. The schedule
-- is last and is one command, as what was written over in it could not be brought back.
local result = {math.floor(ready), math.floor(l / 2), time[1] * 1000000 + time[2]}
local receipted = result[1] .. ' ' .. result[2] .. ' ' .. time[1] .. micros .. ' ' .. digest
redis.call('SET', receipt, receipted, 'PX', keep)
local failure
local listed, pushed = {}, {}
for i = 4, #KEYS do
  local queue = KEYS[i]
  local n = #lists[i - 3]
  if n > 0 and not failure then
    --< part/push_name.lua
    if not failure then
      local length = redis.pcall('LPUSH', queue, unpack(lists[i - 3], 1, math.min(n, 1000)))
      failure = type(length) == 'table' and length.err
      pushed[i] = not failure and n
    end
  end
end
--< part/push_later.lua
if failure then
  for i = 4, #KEYS do
    local queue = KEYS[i]
    --< part/push_undo.lua
  end
  redis.pcall('SET', receipt, '', 'PXAT', 1) -- a past end: this needs no right but that of the first SET
  error({err = failure})
end
return result
