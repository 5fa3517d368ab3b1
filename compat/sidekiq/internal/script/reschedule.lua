--- Reschedule gives a member of a set another time, if it is still there.
---
---@contract all-or-nothing  it writes once
---@retry    safe  the same time is set again
---@key      set     zset  payloads, scored by due time in float seconds
---@arg      member  bytes  the payload
---@arg      due     string  seconds, or + and the seconds from now
---@reply    (found bool, due string)  due: the score that was set
---@cost     O(log n)

local set = KEYS[1]
local member, due = ARGV[1], ARGV[2]

if not redis.call('ZSCORE', set, member) then
  return {0, ''}
end
local score = due
if string.sub(due, 1, 1) == '+' then
  local time = redis.call('TIME')
  score = string.format('%.17g', time[1] + time[2] / 1000000 + due)
end
redis.call('ZADD', set, score, member)
return {1, score}
