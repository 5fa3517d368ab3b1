--- DelayedPromote moves the jobs that are due from scheduled to ready, earliest first.
---
--- A job is due when the server's clock has reached its time, never before.
--- Several pollers may run: each move happens once.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  what has moved is not scheduled any more
---@guard    guard.lua
---@key      scheduled  zset  id, scored by due time in ms
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      wake       zset  channels of those who wait, scored by the end of their wait in ms
---@arg      max     int  min=1 max=1000  the most jobs to move
---@arg      waiter  string  channel to be told on when a job may be due earlier than next_due; empty for none
---@arg      wait    ms  min=0  how long it listens
---@reply    (moved int, now int, next_due time.ms?)  now: in us
---@cost     O(log n + k) for k jobs moved

local scheduled, ready, wake = KEYS[1], KEYS[2], KEYS[3]
local max, waiter, wait = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))
local now_us = time[1] .. string.format('%06d', time[2])

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

local waiting = redis.call('ZCARD', wake) > 0
local ids = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, max)

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', scheduled, '')
if #ids > 0 then
  local stamp = now .. ':'
  for i, id in ipairs(ids) do
    ids[i] = stamp .. id
  end
  redis.call('RPUSH', ready, unpack(ids, 1, #ids))
  redis.call('ZREMRANGEBYRANK', scheduled, 0, #ids - 1)
end

-- A poller that was told of ready jobs passes the word on.
if waiting then
  redis.call('ZREM', wake, waiter)
  if redis.call('LLEN', ready) > 0 then
    rouse()
  end
end
if waiter ~= '' then
  redis.call('ZADD', wake, string.format('%.0f', now + wait), waiter)
  -- Those who wait for longer keep the key for as long as they need it.
  local stay = string.format('%.0f', wait + 1000)
  if redis.call('PEXPIRE', wake, stay, 'GT') == 0 then
    redis.call('PEXPIRE', wake, stay, 'NX')
  end
end

local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and tonumber(head[2]) or false
return {#ids, tonumber(now_us), next_due}
