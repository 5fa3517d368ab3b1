--- CacheLock takes a lock for a name and sets its end, in one write.
---
--- ActionHero sets the end with a second command. A process that dies in between
--- leaves a lock that never ends; where it has this name, the lock is taken.
---
--- ActionHero up to 17 ignores that SETNX fails, and sets its end on the lock of another. So a
--- lock that does not end when it was to end may have a process inside, and is not taken again.
---
---@contract all-or-nothing  one write
---@retry    never  a lock of this name can be that of the first attempt, or another's of the same name
---@key      lock     string  the name of its holder
---@arg      name     string  the holder's
---@arg      ttl      s  min=1 max=3155760000
---@arg      refresh  bool  a lock of the same name is taken again, with a new end
---@arg      known    int  when the lock of this name ends, in Unix ms; 0: not known
---@reply    (state enum(held=0, locked=1, refreshed=2, healed=3, own=4, shared=5), holder string,
---          remaining ms, ends int)  own: of the same name, and not taken again; shared: its end
---          was changed; remaining: -1 where it never ends; ends: of the lock that this call took
---@cost     O(1)

local lock = KEYS[1]
local name, ttl, refresh, known = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local seconds = tonumber(ttl)
if not (seconds and seconds >= 1 and seconds <= 3155760000) then
  error('ttl must be 1 to 3155760000')
end

local state = 1
local holder = redis.call('GET', lock)
if holder then
  local left = redis.call('PTTL', lock)
  if holder ~= name then
    return {0, holder, left, 0}
  elseif left == -1 then
    state = 3
  elseif not refresh then
    return {4, holder, left, 0}
  elseif known > 0 and redis.call('PEXPIRETIME', lock) ~= known then
    return {5, holder, left, 0}
  else
    state = 2
  end
end
--< part/now_ms.lua
-- EXPIRE with the same number of seconds, now or later, ends later than this. The end is one that
-- is known to the millisecond: TIME runs on while the clock of PX stands still in a script.
local lease = seconds * 1000 - 10
local ends = string.format('%.0f', now_ms + lease)
redis.call('SET', lock, name, 'PXAT', ends)
return {state, name, lease, tonumber(ends)}
