--- SemRelease releases a permit and grants what is free to the head of the queue, or removes an
--- entry from the queue.
---
--- It notifies the new holders in the same step. See sem_acquire.lua for the members of the keys.
--- An owner can release an expired lease while no other owner has acquired its permit.
---
---@contract dup-only  an error half-way leaves the permit with its owner or released; a waiter
---          granted one meanwhile learns of it after that lease
---@retry    safe  an owner that has released gets released again for 10 s
---@key      permits  zset  see sem_acquire.lua
---@key      queue  zset  see sem_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      entry  string  removed from the queue if the owner waits; empty for none
---@arg      note   string  the note of the owner; empty if it is not known
---@arg      how    enum(release=0, revoke=1, unconfirmed=2)  revoke: the holder is notified that it lost
---          the permit; unconfirmed: only a permit that was handed over and not confirmed is given back
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@reply    enum(expired=0, released=1, revoked=2, left=3)  expired: the permit is not stored; revoked: it was
---          taken away by force less than 10 s ago; left: the owner only waited
---@error    LAYOUT  the key holds no semaphore of this version
---@cost     O(log n) for each permit that is granted, 64 at most, and for each dead waiter ahead, 2000 at
---          most; n being the number of holders and waiters

local permits, queue = KEYS[1], KEYS[2]
local owner, entry, note, how, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ttl -- no owner acquires in this call

--< part/now_us.lua
--< part/sem_state.lua
local limit = limit_was

-- It runs without an entry, too: after a write that needs no memory, the server allows the
-- other writes while it is over its limit.
local left = redis.call('ZREM', queue, entry) == 1

--< part/number.lua
--< part/sem_stay.lua
--< part/sem_hold.lua
--< part/notify.lua

had = (had >= 0 or had < 10000 - now) and had or 0 -- a mark of 10 s ago counts no more, also where it is still there
if how == '2' and (had <= 0 or had % 1 ~= 0.5) then
  return 0
end
-- The fraction of a negative score: none after a release by the owner, .25 after a forced
-- one, .5 where the owner never held the permit.
local released = had > 0 or had < 0 and had % 1 == (how == '1' and 0.75 or 0)
if had > 0 then
  used = used - weigh(owner)
  local score = string.format('%.2f', how == '1' and -now - 0.25 or -now)
  redis.call('ZADD', permits, score, owner, number(1e15 + used), 'used')
  if note ~= '' then
    redis.call('ZREM', permits, owner .. '\n' .. note)
  end
  if how == '1' then
    notify(channel .. string.match(owner, '^[^.]*'), 'r ' .. owner)
  end
elseif had == 0 then
  -- An acquire that arrives later finds this score and is refused. The half distinguishes
  -- it from a released permit.
  redis.call('ZADD', permits, string.format('%.1f', -now - 0.5), owner)
end
if had < now then
  stay(10000) -- the leases that kept the key may end before that
end
if known then
  bury()
  if redis.call('EXISTS', queue) == 1 then
    --< part/sem_notify_beyond.lua
    --< part/sem_due.lua
    --< part/sem_grant.lua
    grant()
  end
end
return released and 1 or left and 3 or had % 1 == 0.75 and 2 or 0
