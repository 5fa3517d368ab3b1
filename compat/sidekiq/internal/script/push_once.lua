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
-- The server's clock, as a number and as the version writes it into enqueued_at.
local time = redis.call('TIME')
local micros = string.format('%06d', time[2])
local now = time[1] + time[2] / 1000000
local stamp = time[1] .. string.sub(micros, 1, 3)
if clock == '0' then
  -- As Ruby writes a float: no zeros at the end, but one digit after the point.
  stamp = time[1] .. '.' .. string.gsub(string.gsub(micros, '0+$', ''), '^$', '0')
end
-->
local stamped = ',"enqueued_at":' .. stamp .. '}'

--< part/push_once_sort.lua
local runs, r, at = {}, 0, 1
while at <= #plan do
  local _, stop, place, count, kind = string.find(plan, '^(%d+):(%d+):([^;]*);', at)
  if not stop then
    error('plan is not place:count:kind; for each run of jobs')
  end
  runs[r + 1], runs[r + 2], runs[r + 3] = tonumber(place), tonumber(count), kind
  r, at = r + 3, stop + 1
end
local lists, later, l = {}, {}, 0
local left, list, n, tail, due = 0, nil, 0, nil, nil
r = 0
for i = 6, #ARGV do
  local job = ARGV[i]
  if left == 0 then
    local place, kind = runs[r + 1], runs[r + 3]
    left, tail, due = runs[r + 2], stamped, nil
    r = r + 3
    list = lists[place] or {}
    lists[place] = list
    n = #list
    if kind == '=' then
      tail = nil
    elseif kind ~= '' then
      due = tonumber(kind)
      if string.sub(kind, 1, 1) == '+' then
        due = now + due
      end
    end
  end
  left = left - 1
  if due and due > now then
    later[l + 1], later[l + 2] = string.format('%.17g', due), job .. '}'
    l = l + 2
  else
    if tail then
      job = job .. tail
    end
    n = n + 1
    list[n] = job
  end
end
-->
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
    -- A write that follows this push can fail, and LTRIM then takes the push back. So the script tries
    -- LTRIM before it pushes: here it removes nothing.
    local added = redis.pcall('SADD', names, string.sub(queue, skip + 1))
    failure = type(added) == 'table' and added.err
    listed[i] = added == 1
    if not failure and (i < #KEYS or l > 0) then
      failure = redis.pcall('LTRIM', queue, 0, -1).err
    end
    -->
    if not failure then
      local length = redis.pcall('LPUSH', queue, unpack(lists[i - 3], 1, math.min(n, 1000)))
      failure = type(length) == 'table' and length.err
      pushed[i] = not failure and n
    end
  end
end
--< part/push_later.lua
if not failure and l > 0 then
  local added = redis.pcall('ZADD', schedule, unpack(later, 1, l))
  failure = type(added) == 'table' and added.err
end
-->
if failure then
  for i = 4, #KEYS do
    local queue = KEYS[i]
    --< part/push_undo.lua
    -- What was written to the queue is taken back.
    if pushed[i] then
      redis.pcall('LTRIM', queue, pushed[i], -1)
    end
    if listed[i] then
      redis.pcall('SREM', names, string.sub(queue, skip + 1))
    end
    -->
  end
  redis.pcall('SET', receipt, '', 'PXAT', 1) -- a past end: this needs no right but that of the first SET
  error({err = failure})
end
return result
