--- QueueReschedule changes when a scheduled job is due.
---
--- It changes nothing when the job is not scheduled any more, or when the new time
--- is not on the side that mode asks for. A time that has passed makes the job due.
---
---@contract all-or-nothing  one write to the queue's data
---@retry    safe  the same time is set again
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      wake       zset  channels of those who wait, scored by the end of their wait in ms
---@arg      id    string
---@arg      due   int  0 now, above 0 Unix ms, below 0 so many ms from now
---@arg      mode  enum(any=0,earlier=1,later=2)
---@reply    (found bool, moved bool, due time.ms?)  due: as it is now
---@cost     O(log n)

local scheduled, wake = KEYS[1], KEYS[2]
local id, due, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))
if due <= 0 then
  due = now - due
end

-- rouse tells the one that has waited longest. A channel without a receiver
-- belonged to a process that is gone. Only a hint: that it may not be allowed
-- changes nothing.
local function rouse()
  for _ = 1, 8 do
    local waiter = redis.pcall('ZPOPMIN', wake)
    if waiter.err or not waiter[1] then
      return
    end
    local heard = redis.pcall('PUBLISH', waiter[1], '')
    if type(heard) == 'table' and heard.err or heard ~= 0 then
      return
    end
  end
end

redis.call('ZCARD', wake)
local score = redis.call('ZSCORE', scheduled, id)
if not score then
  return {0, 0, false}
end
local old = tonumber(score)
if mode == '1' and due >= old or mode == '2' and due <= old then
  return {1, 0, old}
end
redis.call('ZADD', scheduled, string.format('%.0f', due), id)
if due < old then
  rouse()
end
return {1, 1, due}
