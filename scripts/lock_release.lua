--- LockRelease ends the lease of a held lock.
---
---@contract all-or-nothing  one write
---@retry    safe  an owner that released already is told so
---@key      lock   hash  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@reply    enum(expired=0, released=1, taken=2)  expired: the lease had ended by itself; taken: another owner holds it or has held it since
---@cost     O(1)

local lock = KEYS[1]
local owner = ARGV[1]

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))

local held = redis.call('HMGET', lock, 'o', 'e', 'r')
local holder, ended, released = held[1], held[2], held[3]
if released == owner and holder ~= owner then
  return 1
end
if holder and holder ~= owner then
  return 2
end
if not holder or tonumber(ended or 0) <= now then
  return 0
end

-- The fence stays for the next holder.
redis.call('HSET', lock, 'o', '', 'e', '0', 'm', '', 'r', owner)
return 1
