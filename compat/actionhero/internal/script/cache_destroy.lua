--- CacheDestroy deletes an item, unless another holds the lock of its key.
---
---@contract all-or-nothing  one write
---@retry    never  the first attempt can have deleted it, and another have saved anew
---@slots    any  the names of both keys are ActionHero's; a key with a {tag} has them in one slot
---@key      lock   string  the name of its holder
---@key      item   see cache_save.lua; a list of ActionHero's push and pop too
---@arg      name   string  the holder's
---@reply    (state enum(locked=0, destroyed=1, missing=2), holder string, remaining ms)  remaining:
---          of the lock; -1 where it never ends
---@cost     O(1); O(n) for a list of n

local lock, item = KEYS[1], KEYS[2]
local name = ARGV[1]

local holder = redis.call('GET', lock)
if holder and holder ~= name then
  return {0, holder, redis.call('PTTL', lock)}
end
return {redis.call('DEL', item) == 1 and 1 or 2, '', 0}
