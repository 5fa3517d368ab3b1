--- LockForce takes a lock away from its holder, for another owner or for the next waiter in the
--- queue.
---
--- The script notifies the old holder, if it is subscribed. The token of the old holder is void
--- from now on: its next extend and its release report that. The fence grows, so late writes of the
--- old holder can be refused. A new owner also gets a lock that is free or in its lock delay.
---
---@contract dup-only  an error half-way leaves the lock with its old holder or with the new one
---@retry    safe  an owner that holds the lock already gets its fence; without a new owner a repeat may
---          end the next lease, unless the fence is given
---@key      lock   string  see lock_acquire.lua
---@key      queue  list  see lock_acquire.lua
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
--< part/lock_floor.lua
-- The bounds of the header hold for a call that was not made in Go, too.
local least = tonumber(floor)
if not (least and least >= 0 and least < 2 ^ 52) then
  error('floor must be 0 to 4503599627370495')
end
-->

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
local record = redis.call('GET', lock) or '2 0 0 - - 0 0 '
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
local fence_was, sign, void, tail, holder, delay, after, note =
  string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
  return redis.error_reply('LAYOUT the key holds no lock of this version')
end
-->
-- It removes nothing: a write that needs no memory, see lock_leave.lua.
redis.call('LREM', queue, 1, '')
local left = redis.call('PTTL', lock) - after
if holder == owner and owner ~= '-' and left > 0 then
  return {0, fence_was, '', '', left}
end
--< part/lock_void.lua
-- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
local function is_void(void, token)
  return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
end
-->
if is_void(void, owner) then
  return {0, '0', note, '', 0}
end
local done = holder ~= '-' and left > 0
if fence ~= '0' and fence_was ~= fence or owner == '-' and not done then
  return {0, '0', note, '', 0}
end

--< part/lock_void_lives.lua
-- void_lives reports whether there are void tokens now.
local function void_lives(void)
  return void ~= '-' and time[1] <= string.match(void, '^%d*')
end
-->
--< part/lock_void_add.lua
-- add_void is the list of void tokens with this one in it, for 10 s from now. A long list drops its oldest.
local function add_void(void, token)
  local tokens = void_lives(void) and string.match(string.sub(void, -1500), ',.*$') or ''
  local added = is_void(tokens, token) and '' or ',' .. token
  return string.format('%.0f', time[1] + 10) .. tokens .. added
end
-->
--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(fence, sign, void, tail)
  return '2 ' .. fence .. ' ' .. sign .. ' ' .. void .. tail
end
-->
--< part/lock_write.lua
-- lock_write stores the record of a lock for its life. A record outlives its void tokens: the time that the life is
-- too short for that is added to it and to the afterlife, so that the lease ends when it did. A second is added too:
-- a repeat finds some ms less to live, and that is enough. A fence that is ahead of the clock has the sign 1.
local function lock_write(lock, fence, sign, void, tail, life)
  local ends = void ~= '-' and string.match(void, '^%d+') or 0
  local short = math.min(ends + 1 - time[1], 11) * 1000 - life
  if short > 0 then
    short = short + 1000
    local holder, after, note = string.match(tail, '^( %S+ %d+ )(%d+)(.*)$')
    tail, life = holder .. string.format('%.0f', after + short) .. note, life + short
  end
  if fence - now_us > 0 then
    sign = math.max(sign, 1)
  end
  redis.call('SET', lock, lock_record(fence, sign, void, tail), 'PX', string.format('%.0f', tonumber(life)))
end
-->
--< part/lock_fence_after.lua
-- fence_after is the next fence: the server's time, or one more than the fence and the floor given.
local function fence_after(fence, floor)
  return string.format('%.0f', math.max(now_us, fence + 1, floor + 1))
end
-->
--< part/notify.lua
-- notify reports whether the message was received.
local function notify(channel, message)
  local receivers = redis.pcall('PUBLISH', channel, message)
  return type(receivers) == 'number' and receivers > 0
end

-- subscribed reports whether the channel has a subscriber on this server. A subscriber of a
-- replica receives what is published here and is not counted: it must not be granted what passes it over.
local function subscribed(channel)
  local count = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not count.err and count[2] > 0
end
-->
--< part/lock_hand_over.lua
-- notify_other notifies the first waiter of another process, within the next 16, to check when the
-- lease is over. In a slot that migrates, a server refuses the queue that hand_over has emptied.
local function notify_other(queue, channel, process, lease)
  for _, entry in ipairs(redis.pcall('LRANGE', queue, 0, 15)) do
    if not string.find(entry, ' ' .. process .. '.', 1, true) then
      local token = string.match(entry, '^%d+ (%S+) ') or ''
      return notify(channel .. string.match(token, '^[^.]*'), 'n ' .. token .. ' ' .. lease)
    end
  end
end

-- hand_over gives the free lock to the first waiter that is alive and not void. It is not alive without
-- a subscriber, nor if it is of the process that is dead. If its process is subscribed at another server
-- of the cluster, as after a move of the slot, or at a replica, it is notified to check: its entry is
-- removed. The owner given needs no notification. It returns the new holder, its lease and its note; nil
-- where no waiter is left, false where too many are dead for one call.
local function hand_over(lock, queue, channel, fence, void, dead, owner, ttl)
  local unreachable, tried = {[dead] = true}, 0
  for n = 1, 10000 do
    local ended = n > 1 and redis.pcall('EXISTS', queue) ~= 1 -- see notify_other
    local entry = not ended and redis.call('LPOP', queue)
    if not entry then
      return nil
    end
    local lease, tail, token, after, note = string.match(entry, '^(%d+)( (%S+) %d+ (%d+) (.*))$')
    local process = string.match(token or '', '^[^.]*')
    if token and token == owner then
      lock_write(lock, fence, 1, void, tail, ttl + after + 1)
      return token, ttl, note
    elseif token and #lease + #after <= 26 and not unreachable[process] and not is_void(void, token) then
      if subscribed(channel .. process) then
        lock_write(lock, fence, 2, void, tail, lease + after + 1)
        local grant = 'g ' .. token .. ' ' .. fence .. ' ' .. now_us .. ' ' .. lease .. ' ' .. lock
        if notify(channel .. process, grant) then
          notify_other(queue, channel, process, lease)
          return token, lease, note
        end
      end
      unreachable[process], tried = true, tried + 1
      notify(channel .. process, 'n ' .. token .. ' 0')
      if tried == 1000 then
        return false
      end
    end
  end
  return false
end
-->
--< part/lock_pass_on.lua
-- pass_on hands the lock over, or leaves it free: without a record, unless that has void tokens, the
-- next call has to continue, the caller wants it to stay, or its fence is ahead of the clock: until that has passed
-- it, for a minute at most.
local function pass_on(lock, queue, channel, fence, void, stay)
  local token = hand_over(lock, queue, channel, fence_after(fence, 0), void, '')
  if token then
    return
  end
  local ahead = math.ceil((fence - now_us) / 1000)
  stay = token == false and 60000 or math.max(stay, math.min(ahead, 60000))
  if stay == 0 and not void_lives(void) then
    redis.call('DEL', lock)
  else
    lock_write(lock, fence, token == false and 1 or 0, void, ' - 0 0 ', stay)
  end
end
-->
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
