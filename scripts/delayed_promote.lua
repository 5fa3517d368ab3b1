--- DelayedPromote moves the jobs that are due from scheduled to ready, earliest first.
---
--- A job is due when the server's clock has reached its time, never before.
--- Several pollers may run: each move happens once.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one
---@retry    safe  what has moved is not scheduled any more
---@key      scheduled  zset  id, scored by due time in ms
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@arg      max  int  min=1 max=1000  the most jobs to move
---@reply    (moved int, now time.ms, next_due time.ms?)
---@cost     O(log n + k) for k jobs moved

local scheduled, ready = KEYS[1], KEYS[2]
local max = tonumber(ARGV[1])

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))

local ids = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, max)
if #ids > 0 then
  -- The member does not exist; see queue_take.lua.
  redis.call('ZREM', scheduled, '')
  local stamp = now .. ':'
  for i, id in ipairs(ids) do
    ids[i] = stamp .. id
  end
  redis.call('RPUSH', ready, unpack(ids, 1, #ids))
  redis.call('ZREMRANGEBYRANK', scheduled, 0, #ids - 1)
end

local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local next_due = head[2] and tonumber(head[2]) or false
return {#ids, tonumber(now), next_due}
