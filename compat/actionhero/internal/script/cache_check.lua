--- CacheCheck says who holds a lock, and for how much longer.
---
---@retry  safe
---@readonly
---@key    lock  string  the name of its holder, as ActionHero writes it
---@reply  (holder string?, remaining ms)  remaining: -1 where it never ends
---@cost   O(1)

local lock = KEYS[1]

local holder = redis.call('GET', lock)
if not holder then
  return {false, 0}
end
return {holder, redis.call('PTTL', lock)}
