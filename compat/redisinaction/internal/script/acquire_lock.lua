--- AcquireLock takes a lock that nobody holds.
---
--- A lock without a time to live, held by another, can be given one: the holder may
--- be lost for good.
---
---@contract all-or-nothing  one write
---@retry    safe  an identifier that holds the lock gets it again, for no less time
---@key      lock        string  the identifier of its holder
---@arg      identifier  string  of this acquire alone
---@arg      ttl         ms  min=1  how long it is held; ExtendLock sets a longer time, or none
---@arg      heal        ms  min=0  the time to live for one that has none, 0 to leave it so
---@reply    (acquired bool, remaining int)  remaining: of the other's, in ms; below 0 if it has no end
---@cost     O(1)

local lock = KEYS[1]
local identifier, ttl, heal = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not (ttl + 0 >= 1 and heal >= 0) then
  error('ttl must be 1 or more, heal must be 0 or more')
end

local holder = redis.call('GET', lock)
if holder == identifier then
  redis.call('PEXPIRE', lock, ttl, 'GT') -- one without an end is longer than any
  return {1, 0}
elseif holder then
  local remaining = redis.call('PTTL', lock)
  if remaining < 0 and heal > 0 then
    redis.call('PEXPIRE', lock, string.format('%.0f', heal))
    remaining = heal
  end
  return {0, remaining}
end
redis.call('SET', lock, identifier, 'PX', ttl)
return {1, 0}
