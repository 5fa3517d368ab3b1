--- LockExtend starts the lease of a held lock anew.
---
--- It never creates a lock: a lease that has ended stays ended, even when nobody
--- took the lock since. It works on a server that is over its memory limit.
---
---@contract dup-only  an error half-way leaves the lease as it was or extended
---@retry    safe  the owner is compared
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the lease from now on
---@arg      keep   ms  min=1  how long the string stays
---@reply    enum(expired=0, extended=1, taken=2)  taken: another owner holds it or has held it since
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl, keep = ARGV[1], ARGV[2], ARGV[3]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local record = redis.call('GETEX', lock, 'PX', keep) -- see lock_release.lua
if not record then
  return 0
end
local fence, waiting, holder, start, length, delay, last, note =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
local left = start / 1000 + length - now / 1000

if holder == owner and left > 0 then
  redis.call('SET', lock, fence .. ' ' .. waiting .. ' ' .. holder .. ' ' .. now .. ' ' .. ttl .. ' ' .. delay .. ' ' .. last .. ' ' .. note, 'KEEPTTL')
  return 1
end
if start ~= '0' then -- it is another's string, and stays as long as that one needs it
  redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + delay + 60000)
end
return holder == owner and 0 or 2
