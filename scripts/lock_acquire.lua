--- LockAcquire takes a lock for an owner, unless another one holds it.
---
--- The lock is one hash: o owner, f fence, e end of the lease in ms, m note of the
--- holder, r owner that released last. The lease ends by the clock, at e; the hash
--- stays a minute longer, so that a late release gets its answer and the fence
--- grows even when the clock is set back.
---
--- The fence is the server's time in microseconds, or one more than the last one
--- where that is greater. So it grows with every new holder although no counter
--- stays behind.
---
---@contract dup-only  an error half-way leaves the lock with this owner, whose repeat finds it its own
---@retry    safe  an owner that holds the lock gets the same fence again, and its lease starts anew
---@key      lock   hash  o, f, e, m, r as above
---@arg      owner  string  a token of this acquire alone
---@arg      ttl    ms  min=1  the lease
---@arg      note   string  what others are told of the holder
---@reply    (acquired bool, fence int, remaining ms, holder string)  remaining: the lease's; holder: its note
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl, note = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))

local held = redis.call('HMGET', lock, 'o', 'f', 'e', 'm')
local holder, last, remaining = held[1], held[2], tonumber(held[3] or 0) - now
local taken = holder and holder ~= '' and remaining > 0
if taken and holder ~= owner then
  return {0, last, remaining, held[4] or ''}
end

-- Microseconds have more digits than Lua prints by itself.
local fence = time[1] .. string.format('%06d', time[2])
if taken then
  fence = last
elseif last and tonumber(last) >= tonumber(fence) then
  fence = string.format('%.0f', tonumber(last) + 1)
end

redis.call('HSET', lock, 'o', owner, 'f', fence, 'e', string.format('%.0f', now + ttl), 'm', note)
redis.call('PEXPIRE', lock, string.format('%.0f', ttl + 60000))
return {1, fence, ttl, note}
