--- Reschedule changes when a scheduled job is due.
---
--- It changes nothing when the job is not scheduled any more, or when the new time is not on the
--- side of the old one that mode asks for. A time that has passed makes the job due.
---
---@contract dup-only  an error half-way leaves the job with its new time
---@retry    safe  the same receipt gives the same answer again, for a minute
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      wake       zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      receipt    string  the answer to this call, kept for a repeat
---@arg      id    string
---@arg      due   int  0 now, above 0 Unix ms, below 0 so many ms from now
---@arg      mode  enum(any=0,earlier=1,later=2)
---@reply    (found bool, moved bool, due time.ms?)  due: as it is now
---@cost     O(log n)

local scheduled, wake, receipt = KEYS[1], KEYS[2], KEYS[3]
local id, due, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]

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
  local moved, at = string.match(kept, '^(%d) ?(.*)$')
  return {at ~= '' and 1 or 0, tonumber(moved), tonumber(at) or false}
end

local score = redis.call('ZSCORE', scheduled, id)
local old = score and math.min(tonumber(score), 2 ^ 53)
local moved = old and not (mode == '1' and due >= old or mode == '2' and due <= old)
local at = moved and due or old
if moved then
  redis.call('ZADD', scheduled, string.format('%.0f', due), id)
end
-- The receipt also says that nothing was moved: a late copy of this call must not undo one that has come since.
redis.call('SET', receipt, (moved and 1 or 0) .. (at and string.format(' %.0f', at) or ''), 'PX', 60000)
if moved and due < old then
  --< part/wake_next.lua
end
return {old and 1 or 0, moved and 1 or 0, at}
