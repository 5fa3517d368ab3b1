--- Force takes a lock away from its holder, for another owner or for the next waiter in the
--- queue.
---
--- The script notifies the old holder, if it is subscribed. The token of the old holder is void
--- from now on: its next extend and its release report that. The fence grows, so late writes of the
--- old holder can be refused. A new owner also gets a lock that is free or in its lock delay.
---
---@contract dup-only  an error half-way leaves the lock with its old holder or with the new one
---@retry    safe  an owner that holds the lock already gets its fence; without a new owner a repeat may
---          end the next lease, unless the fence is given
---@key      lock   string  see acquire.lua
---@key      queue  list  see acquire.lua
---@arg      fence  int  min=0  of the holder to remove; 0 for any holder
---@arg      owner  string  the new owner; "-" to release
---@arg      own    string  the record of the new owner from its token on, with a space before it
---@arg      life   ms  min=2  its lease, the afterlife and 1 ms
---@arg      floor  int  min=0 max=4503599627370495  the new fence is greater
---@arg      stay   ms  min=0  how long the record of a free lock stays; longer where the old holder's record says so
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@reply    (done bool, fence int, holder string, token string, remaining ms)  done: a holder lost the lock; fence:
---          the new fence, 0 when nothing was changed, as for a void owner; holder: the note of the old holder; token:
---          its token; remaining: of this owner's lease where it held the lock before, 0 for the whole
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1); O(n) of the dead waiters ahead, 10000 at most

local lock, queue = KEYS[1], KEYS[2]
local fence, owner, own, life, floor, stay, channel =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
if not (life + 0 >= 2 and stay >= 0) then
  error('life must be 2 or more, stay must be 0 or more')
end
--< part/floor.lua

--< part/now_us.lua
local record = redis.call('GET', lock) or '2 0 0 - - 0 0 '
--< part/read.lua
-- It removes nothing: a write that needs no memory, see leave.lua.
redis.call('LREM', queue, 1, '')
local left = redis.call('PTTL', lock) - after
if holder == owner and owner ~= '-' and left > 0 then
  return {0, fence_was, '', '', left}
end
--< part/void.lua
if is_void(void, owner) then
  return {0, '0', note, '', 0}
end
local done = holder ~= '-' and left > 0
if fence ~= '0' and fence_was ~= fence or owner == '-' and not done then
  return {0, '0', note, '', 0}
end

--< part/void_lives.lua
--< part/void_add.lua
--< part/record.lua
--< part/write.lua
--< part/fence_after.lua
--< part/notify.lua
--< part/hand_over.lua
--< part/pass_on.lua
if done then
  void = add_void(void, holder)
end
fence = fence_after(fence_was, floor)
if owner ~= '-' then
  lock_write(lock, fence, sign == '0' and 0 or 1, void, own, life)
else
  pass_on(lock, queue, channel, fence_was, void, math.max(stay, math.min(after, 2 ^ 50)))
end
if done then
  notify(channel .. string.match(holder, '^[^.]*'), 'r ' .. holder .. ' ' .. lock)
end
return {done and 1 or 0, fence, note, done and holder or '', 0}
