--- Push puts jobs into queues and into the schedule, all of them or none.
---
--- A job of a queue has enqueued_at by the server's clock, as its last field, unless it
--- came with one. A job for later that is due by then goes into its queue. To write the
--- field here costs as much as all else, so the caller may write its guess of the server's
--- time: it stays where it is off by no more than slack, and is written anew where not.
---
--- Long because the plan of a batch is read before anything is written.
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

--< part/push_sort.lua
-- The jobs of each queue: a list of them, or, for those of one run that nothing is to be
-- written into, the first and the last in the arguments, where they are pushed from.
local lists, firsts, lasts, later, l = {}, {}, {}, {}, 0
local last, at = 4, 1
while at <= #plan do
  local _, stop, place, count, kind = string.find(plan, '^(%d+):(%d+):([^;]*);', at)
  local first = last + 1
  last = stop and last + tonumber(count) or #ARGV + 1
  if last > #ARGV then
    error('plan is not place:count:kind; for the jobs that there are')
  end
  at = stop + 1
  local tail, due, cut = stamped, nil, nil
  local size, guess = string.match(kind, '^~(%d+),(%d+)$')
  if size and math.abs(guess - time[1] * 1000000 - time[2]) > slack then
    cut = -size - 1
  elseif size or kind == '=' then
    tail = nil
  elseif kind ~= '' then
    due = tonumber(kind)
    if string.sub(kind, 1, 1) == '+' then
      due = now + due
    end
  end
  local list = lists[place]
  if not tail and not list then
    lists[place], firsts[place], lasts[place] = {}, first, last
  else
    if not list then
      list = {}
    elseif firsts[place] then
      list = {unpack(ARGV, firsts[place], lasts[place])}
    end
    lists[place], firsts[place] = list, nil
    local n = #list
    for i = first, last do
      local job = ARGV[i]
      if due and due > now then
        later[l + 1], later[l + 2] = string.format('%.17g', due), job .. '}'
        l = l + 2
      else
        if cut then
          job = string.sub(job, 1, cut)
        end
        if tail then
          job = job .. tail
        end
        n = n + 1
        list[n] = job
      end
    end
  end
end
-->
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
if not failure and l > 0 then
  local added = redis.pcall('ZADD', schedule, unpack(later, 1, l))
  failure = type(added) == 'table' and added.err
end
-->
if failure then
  for i = 3, #KEYS do
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
  error({err = failure})
end
return {math.floor(ready), math.floor(l / 2), time[1] * 1000000 + time[2]}
