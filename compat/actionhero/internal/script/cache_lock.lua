--- CacheLock takes a lock for a name and sets its end, in one write.
---
--- ActionHero sets the end with a second command. A process that dies in between
--- leaves a lock that never ends; where it has this name, the lock is taken.
---
---@contract all-or-nothing  one write
---@retry    never  a lock of this name can be that of the first attempt, or another's of the same name
---@key      lock     string  the name of its holder
---@arg      name     string  the holder's
---@arg      ttl      s  min=1 max=3155760000
---@arg      refresh  bool  a lock of the same name is taken again, with a new end
---@reply    (state enum(held=0, locked=1, refreshed=2, healed=3, own=4), holder string,
---          remaining ms)  own: of the same name, and not taken again; remaining: -1 where it never
---          ends
---@cost     O(1)

local lock = KEYS[1]
local name, ttl, refresh = ARGV[1], ARGV[2], ARGV[3] == '1'
local seconds = tonumber(ttl)
if not (seconds and seconds >= 1 and seconds <= 3155760000) then
  error('ttl must be 1 to 3155760000')
end

local state = 1
local holder = redis.call('GET', lock)
if holder then
  local left = redis.call('PTTL', lock)
  if holder ~= name then
    return {0, holder, left}
  elseif left == -1 then
    state = 3
  elseif refresh then
    state = 2
  else
    return {4, holder, left}
  end
end
redis.call('SET', lock, name, 'EX', ttl)
return {state, name, ttl * 1000}
