--- CacheUnlock ends a lock, if it is of this name.
---
--- ActionHero looks first and deletes then, and may delete the lock of the next holder. Up to 17
--- it sets its end on the lock of another and goes on: such a lock is left to that end.
---
---@contract all-or-nothing  one write
---@retry    never  the first attempt can have ended it, and another of the same name have taken it
---@key      lock  string  the name of its holder
---@arg      name  string  the holder's
---@arg      known int  when the lock of this name ends, in Unix ms; 0: not known
---@reply    (state enum(held=0, unlocked=1, free=2, shared=3), holder string, remaining ms)  shared: its
---          end was changed; remaining: -1 where it never ends
---@cost     O(1)

local lock = KEYS[1]
local name, known = ARGV[1], tonumber(ARGV[2])

local holder = redis.call('GET', lock)
if not holder then
  return {2, '', 0}
end
local left = redis.call('PTTL', lock)
if holder ~= name then
  return {0, holder, left}
end
if known > 0 and left >= 0 and redis.call('PEXPIRETIME', lock) ~= known then
  return {3, holder, left}
end
redis.call('DEL', lock)
return {1, name, 0}
