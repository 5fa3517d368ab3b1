--- Reschedule changes when a scheduled job is due.
---
--- It changes nothing when the job is not scheduled any more. A time that has passed makes the job due.
---
---@contract dup-only  an error half-way leaves the job with its new time
---@retry    safe  the same receipt gives the same answer again, for a minute
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      wake       zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      receipt    string  the answer to this call, kept for a repeat
---@arg      id    string
---@arg      due   int  0 now, above 0 Unix ms, below 0 so many ms from now
---@reply    (found bool, due time.ms?)  due: as it is now
---@cost     O(log n)

local scheduled, wake, receipt = KEYS[1], KEYS[2], KEYS[3]
local id, due = ARGV[1], tonumber(ARGV[2])

--< part/now_ms.lua
local now = tonumber(now_ms)
if due < 0 then
  due = now + 1 - due -- now is rounded down
elseif due == 0 then
  due = now
end

redis.call('ZCARD', wake)
local kept = redis.call('GET', receipt)
if kept then
  return {kept ~= '' and 1 or 0, tonumber(kept) or false}
end

local old = redis.call('ZSCORE', scheduled, id)
local at = old and string.format('%.0f', due) or ''
if old then
  redis.call('ZADD', scheduled, at, id)
end
-- The receipt also says that no job was found: a late copy of this call must not undo one that has come since.
redis.call('SET', receipt, at, 'PX', 60000)
if old and due < tonumber(old) then
  --< part/wake_next.lua
end
return {old and 1 or 0, old and due}
