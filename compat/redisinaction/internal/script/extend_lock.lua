--- ExtendLock gives a lock a time to live from now on, or lets it keep a longer one, if the identifier
--- holds it: a late copy of an earlier call does not end the lock under its holder.
---
---@contract all-or-nothing  one write
---@retry    safe  the same time is set again, and none is made shorter
---@key      lock        string  the identifier of its holder
---@arg      identifier  string
---@arg      ttl         ms  min=1  from now
---@reply    bool
---@cost     O(1)

local lock = KEYS[1]
local identifier, ttl = ARGV[1], ARGV[2]
if not (ttl + 0 >= 1) then
  error('ttl must be 1 or more')
end

if redis.call('GET', lock) ~= identifier then
  return 0
end
if redis.call('PTTL', lock) == -1 then
  redis.call('PEXPIRE', lock, ttl)
else
  redis.call('PEXPIRE', lock, ttl, 'GT')
end
return 1
