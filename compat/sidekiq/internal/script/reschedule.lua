--- Reschedule gives a member of a set another time, if it is still there.
---
---@contract dup-only  an error half-way leaves the member with its new time
---@retry    safe  the same receipt gives the same answer again, for a minute
---@slots    any  the keys are Sidekiq's, which have no tag
---@key      set      zset  payloads, scored by due time in float seconds
---@key      receipt  string  the score that was set, kept for a repeat; empty when the member was not there
---@arg      member  bytes  the payload
---@arg      due     string  seconds, or + and the seconds from now
---@reply    (found bool, due string)  due: the score that was set
---@cost     O(log n)

local set, receipt = KEYS[1], KEYS[2]
local member, due = ARGV[1], ARGV[2]

local score = redis.call('GET', receipt)
if not score then
  score = redis.call('ZSCORE', set, member) and due or ''
  if string.sub(score, 1, 1) == '+' then
    local time = redis.call('TIME')
    score = string.format('%.17g', time[1] + time[2] / 1000000 + due)
  end
  if score ~= '' then
    redis.call('ZADD', set, score, member)
  end
  -- The receipt also says that the member was not there: a late copy must not undo a call that has come since.
  redis.call('SET', receipt, score, 'PX', 60000)
end
return {score ~= '' and 1 or 0, score}
