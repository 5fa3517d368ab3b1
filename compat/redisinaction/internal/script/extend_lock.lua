--- ExtendLock gives a lock a time to live from now on, or lets it keep a longer one, if the identifier
--- holds it: a late copy of an earlier call does not end the lock under its holder.
---
---@contract all-or-nothing  one write
---@retry    safe  the same time is set again, and none is made shorter
---@key      lock        string  the identifier of its holder
---@arg      identifier  string
---@arg      ttl         ms  min=0  from now, 0 for until it is released
---@reply    bool
---@cost     O(1)

local lock = KEYS[1]
local identifier, ttl = ARGV[1], ARGV[2]
if not (ttl + 0 >= 0) then
  error('ttl must be 0 or more')
end

if redis.call('GET', lock) ~= identifier then
  return 0
end
if ttl == '0' then
  redis.call('SET', lock, identifier)
elseif redis.call('PTTL', lock) == -1 then
  redis.call('PEXPIRE', lock, ttl)
else
  redis.call('PEXPIRE', lock, ttl, 'GT')
end
return 1
