--- Push puts jobs into queues and into the schedule, all of them or none.
---
--- A job of a queue has enqueued_at by the server's clock, as its last field, unless it
--- came with one. A job for later that is due by then goes into its queue. To write the
--- field here costs as much as all else, so the caller may write its guess of the server's
--- time: it stays where it is off by no more than slack, and is written anew where not.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    never  a repeat pushes the jobs again
---@slots    any  the keys are Sidekiq's, which have no tag
---@key      names     set   names of the queues
---@key      schedule  zset  payloads, scored by due time in float seconds
---@keys     queue     list  max=1000  payloads, the newest at the head
---@arg      skip      int  min=0  the bytes before the name in a queue's key
---@arg      clock     enum(seconds=0, milliseconds=1)  how enqueued_at is written
---@arg      slack     int  min=0  us that a guess may be off
---@arg      plan      string  for each run of jobs place:count:kind; place is of the queue, from 1;
---          kind is empty for jobs to stamp, = for jobs as they are, for later ones due in seconds,
---          + and the seconds from now, or ~size,guess for jobs that end in a guess of so many
---          bytes with the brace, in us
---@args     job       bytes  max=1000  a payload; without its last brace unless its kind is = or a guess
---@reply    (ready int, scheduled int, now int)  now: in us
---@cost     O(log n) for each scheduled job, O(1) for each ready one and for each queue
---@allow    W002 an undo goes as far as it can

local names, schedule = KEYS[1], KEYS[2]
local skip, clock, slack, plan = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
if #KEYS > 1002 then
  error('queue: at most 1000')
end
if not (skip and slack and skip >= 0 and slack >= 0) then
  error('skip and slack must be 0 or more')
end
if #ARGV > 1004 then
  error('job: at most 1000')
end

-- A key of the wrong type stops the script here, while nothing is written; that of names
-- does at its first write.
redis.call('ZCARD', schedule)
for i = 3, #KEYS do
  local queue = KEYS[i]
  redis.call('LLEN', queue)
end

--< part/enqueued_at.lua
local stamped = ',"enqueued_at":' .. stamp .. '}'

--< part/push_sort.lua
local ready = #ARGV - 4 - l / 2

-- A write can be refused by an ACL that allows some of the keys. The name of a queue
-- comes first: neither workers nor a clear find a queue without it. The schedule is last
-- and is one command, as what was written over in it could not be brought back.
local failure
local listed, pushed = {}, {}
for i = 3, #KEYS do
  local queue = KEYS[i]
  local place = tostring(i - 2)
  local list, first, last = lists[place], firsts[place], lasts[place]
  local n = first and last - first + 1 or #list
  if n > 0 and not failure then
    --< part/push_name.lua
    if not failure then
      local length
      if first then
        length = redis.pcall('LPUSH', queue, unpack(ARGV, first, last))
      else
        length = redis.pcall('LPUSH', queue, unpack(list, 1, math.min(n, 1000)))
      end
      failure = type(length) == 'table' and length.err
      pushed[i] = not failure and n
    end
  end
end
--< part/push_later.lua
if failure then
  for i = 3, #KEYS do
    local queue = KEYS[i]
    --< part/push_undo.lua
  end
  error({err = failure})
end
return {math.floor(ready), math.floor(l / 2), time[1] * 1000000 + time[2]}
