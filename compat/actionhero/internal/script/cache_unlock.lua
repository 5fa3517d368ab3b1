--- CacheUnlock ends a lock, if it is of this name.
---
--- ActionHero looks first and deletes then, and may delete the lock of the next holder.
---
---@contract all-or-nothing  one write
---@retry    never  the first attempt can have ended it, and another of the same name have taken it
---@key      lock  string  the name of its holder
---@arg      name  string  the holder's
---@reply    (state enum(held=0, unlocked=1, free=2), holder string, remaining ms)  remaining: -1 where it never ends
---@cost     O(1)

local lock = KEYS[1]
local name = ARGV[1]

local holder = redis.call('GET', lock)
if not holder then
  return {2, '', 0}
elseif holder ~= name then
  return {0, holder, redis.call('PTTL', lock)}
end
redis.call('DEL', lock)
return {1, name, 0}
