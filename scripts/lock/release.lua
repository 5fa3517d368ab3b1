--- Release ends a lease and hands the lock to the first waiter that is alive.
---
--- The script is written for many locks. It deletes a lock without waiters. Otherwise it notifies
--- the next holder in the same step. See acquire.lua for the record. An owner can release an
--- expired lease while its record is stored: then no other holder came between.
---
--- Long because it is written for many locks, and begins with a short way for one.
---
---@merge    max=64
---@contract dup-only  an error half-way leaves the lock with its owner or with the next holder,
---          which learns of it after that lease
---@retry    safe  a repeat finds no record or another holder's
---@key      lock   string  see acquire.lua
---@key      queue  list  see acquire.lua
---@arg      owner  string  the token that acquired
---@arg      whole   string  what the lock is if nobody waits: the caller knows all of it
---@arg      stay   ms  min=0  how long the record of a free lock stays
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@reply    enum(expired=0, released=1, taken=2, revoked=3)  expired: there is no record, or a free
---          one; taken: another owner holds the lock; revoked: it was taken away by force
---@allow    K001 both lists are of entries of KEYS
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1); O(n) of the dead waiters ahead, 10000 at most

-- One lock that nobody waits for is the usual case: it needs no tables.
local found
if #KEYS == 2 and ARGV[3] == '0' then
  found = redis.call('MGET', KEYS[1])
  if found[1] == ARGV[2] then
    redis.call('DEL', KEYS[1])
    return {1}
  end
end
if #KEYS > 128 then
  error('row: at most 64')
end
local locks, replies, free, other = {}, {}, {}, {}
for i = 1, #KEYS, 2 do
  locks[#locks + 1] = KEYS[i]
  local stay = ARGV[2 * i + 1]
  if not (stay + 0 >= 0) then
    error('stay must be 0 or more')
  end
end
found = found or redis.call('MGET', unpack(locks, 1, math.min(#locks, 64)))
for i, lock in ipairs(locks) do
  local record = found[i]
  if not record then
    redis.call('GET', lock) -- MGET hides a key of another type
    replies[i] = 0
  elseif record == ARGV[4 * i - 2] and ARGV[4 * i - 1] == '0' then
    replies[i], free[#free + 1] = 1, lock
  else
    --< part/read.lua
    other[#other + 1] = {i, fence_was, void, holder}
  end
end
if other[1] then
  --< part/now_us.lua
  --< part/void.lua
  --< part/void_lives.lua
  --< part/record.lua
  --< part/write.lua
  --< part/fence_after.lua
  --< part/notify.lua
  --< part/hand_over.lua
  --< part/pass_on.lua
  local passed = {}
  for _, row in ipairs(other) do
    local i, fence_was, void, holder = unpack(row, 1, 4)
    local owner, stay, channel = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 1]), ARGV[4 * i]
    local lock = KEYS[2 * i - 1]
    if holder == owner then
      if not passed[lock] then -- a row may be there twice, and the lock has another holder since
        pass_on(lock, KEYS[2 * i], channel, fence_was, void, stay)
        passed[lock] = true
      end
      replies[i] = 1
    elseif is_void(void, owner) then
      replies[i] = 3
    else
      replies[i] = holder == '-' and 0 or 2
    end
  end
end
if free[1] then
  redis.call('DEL', unpack(free, 1, math.min(#free, 64)))
end
return replies
