--- LockExtend starts the lease of a held lock anew.
---
--- It never creates a lock: a lease that has ended stays ended, even when nobody
--- took the lock since.
---
---@contract dup-only  an error half-way leaves the lease extended
---@retry    safe  the owner is compared
---@key      lock   hash  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the lease from now on
---@reply    enum(expired=0, extended=1, taken=2)  taken: another owner holds it or has held it since
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl = ARGV[1], tonumber(ARGV[2])

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))

local held = redis.call('HMGET', lock, 'o', 'e')
local holder = held[1]
if holder and holder ~= owner then
  return 2
end
if not holder or tonumber(held[2] or 0) <= now then
  return 0
end

redis.call('HSET', lock, 'e', string.format('%.0f', now + ttl))
redis.call('PEXPIRE', lock, string.format('%.0f', ttl + 60000))
return 1
