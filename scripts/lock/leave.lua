--- Leave undoes an acquire: it leaves the queue and gives back what the owner was granted.
---
--- A void owner gets nothing for 10 s: a late request of that owner does nothing.
---
---@contract dup-only  an error half-way leaves the lock with its owner or with the next holder,
---          which learns of it after that lease
---@retry    safe  a repeat finds nothing of the owner
---@key      lock   string  see acquire.lua
---@key      queue  list  see acquire.lua
---@arg      owner  string  the token of the acquire
---@arg      entry  string  removed from the queue; empty for none
---@arg      how    enum(void=0, unconfirmed=1, late=2)  void: the owner becomes void; unconfirmed: only a
---          lock that was handed over and not confirmed is given back; late: as void, but a lock that
---          the owner holds is not given back
---@arg      stay   ms  min=0  how long the record of a free lock stays; where it is unconfirmed, the record says so
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@reply    bool  whether the owner held the lock
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(n) of the waiters with an entry, else O(1)

local lock, queue = KEYS[1], KEYS[2]
local owner, entry, how, stay, channel = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not (stay >= 0) then
  error('stay must be 0 or more')
end

--< part/now_us.lua
local found = redis.call('GET', lock)
local record = found or '2 0 0 - - 0 0 '
--< part/read.lua
-- The first write needs no memory. After it, the server allows the others while it is over its limit.
redis.call('LREM', queue, 1, entry)

--< part/record.lua
--< part/write.lua
--< part/void_lives.lua
--< part/void.lua
if how ~= '1' then
  --< part/void_add.lua
  void = add_void(void, owner)
end
if holder == owner and (how == '0' or how == '1' and sign == '2') then
  --< part/fence_after.lua
  --< part/notify.lua
  --< part/hand_over.lua
  --< part/pass_on.lua
  -- A caller that gives back what nobody waits for does not know the afterlife. The record does.
  pass_on(lock, queue, channel, fence_was, void, how == '0' and stay or math.min(after, 2 ^ 50))
  return 1
end
if how ~= '1' and holder ~= '-' then
  lock_write(lock, fence_was, sign, void, tail, redis.call('PTTL', lock))
elseif how ~= '1' then
  stay = math.max(stay, found and redis.call('PTTL', lock) or 0)
  lock_write(lock, fence_was, sign, void, tail, stay)
end
return 0
