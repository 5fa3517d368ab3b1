--- Move moves members of a set that are due to their queues, each with enqueued_at by the
--- server's clock. All other bytes of a payload stay what they were.
---
--- A member that was moved, or put off, is passed over: another poller had it. A
--- queue that cannot be written to keeps its jobs in the set, and the others move.
---
---@contract dup-only  an error half-way can leave the jobs of one queue there and in the set, never in neither
---@retry    safe  what has moved is not in the set any more
---@slots    any  the keys are Sidekiq's, which have no tag
---@key      set    zset  payloads, scored by due time in float seconds
---@key      names  set   names of the queues
---@keys     queue  list  max=1000  payloads, the newest at the head
---@arg      skip   int  min=0  the bytes before the name in a queue's key
---@arg      clock  enum(seconds=0, milliseconds=1)  how enqueued_at is written
---@arg      plan   bytes  for each member ten bytes, place, from and till as big-endian numbers of 2,
---          4 and 4; place is of its queue, from 1; the bytes after from up to till are those of the
---          old enqueued_at, none when it has none and the new one goes there
---@args     member  bytes  max=1000 bytes=536870912
---@reply    (moved int, now int, stuck int, failed int, reason string)  now: in us; stuck: how many
---          jobs stay as their queue cannot be written to; failed: 0, or the place of such a queue;
---          reason: the server's
---@cost     O(k log n) for k jobs

local set, names = KEYS[1], KEYS[2]
local skip, clock, plan = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if #KEYS > 1002 then
  error('queue: at most 1000')
end
if not (skip and skip >= 0) then
  error('skip must be 0 or more')
end
if #ARGV > 1003 then
  error('member: at most 1000')
end

local scores = redis.call('ZMSCORE', set, unpack(ARGV, 4))

--< part/enqueued_at.lua
local added = ',"enqueued_at":' .. stamp

if #plan ~= 10 * (#ARGV - 3) then
  error('plan is not ten bytes for each member')
end
local lists, gone = {}, {}
for i = 4, #ARGV do
  local score = scores[i - 3]
  if score and tonumber(score) <= now then
    local member, at = ARGV[i], 10 * i - 39
    local p, q, a, b, c, d, e, f, g, h = string.byte(plan, at, at + 9)
    local place, from, till = 256 * p + q, ((a * 256 + b) * 256 + c) * 256 + d, ((e * 256 + f) * 256 + g) * 256 + h
    local list = lists[place]
    if not list then
      list = {}
      lists[place], gone[place] = list, {}
    end
    list[#list + 1] = string.sub(member, 1, from) .. (from == till and added or stamp) .. string.sub(member, till + 1)
    gone[place][#list] = member
  end
end

-- Where members may be added and not removed, every look would add them again. So the
-- right to remove is tried first, on a member that is not there.
if not redis.call('ZSCORE', set, '') then
  redis.call('ZREM', set, '')
end
local moved, stuck, failed, reason = 0, 0, 0, ''
for i = 3, #KEYS do
  local queue = KEYS[i]
  local place, n = i - 2, #(gone[i - 2] or {})
  if n > 0 then
    redis.call('SADD', names, string.sub(queue, skip + 1))
    local done = redis.pcall('LPUSH', queue, unpack(lists[place], 1, math.min(n, 1000)))
    if type(done) == 'table' and done.err then
      stuck, failed, reason = stuck + n, place, done.err
    else
      redis.call('ZREM', set, unpack(gone[place], 1, math.min(n, 1000)))
      moved = moved + n
    end
  end
end
return {moved, time[1] * 1000000 + time[2], stuck, failed, reason}
