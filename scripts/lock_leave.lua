--- LockLeave undoes an acquire: it leaves the queue and gives back what the owner was granted.
---
--- A void owner gets nothing for 10 s: a late request of that owner does nothing.
---
---@contract dup-only  an error half-way leaves the lock with its owner or with the next holder,
---          which learns of it after that lease
---@retry    safe  a repeat finds nothing of the owner
---@key      lock   string  see lock_acquire.lua
---@key      queue  list  see lock_acquire.lua
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
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
local found = redis.call('GET', lock)
local record = found or '2 0 0 - - 0 0 '
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
local fence_was, sign, void, tail, holder, delay, after, note =
  string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
  return redis.error_reply('LAYOUT the key holds no lock of this version')
end
-->
-- The first write needs no memory. After it, the server allows the others while it is over its limit.
redis.call('LREM', queue, 1, entry)

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
--< part/lock_void_lives.lua
-- void_lives reports whether there are void tokens now.
local function void_lives(void)
  return void ~= '-' and time[1] <= string.match(void, '^%d*')
end
-->
--< part/lock_void.lua
-- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
local function is_void(void, token)
  return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
end
-->
if how ~= '1' then
  --< part/lock_void_add.lua
  -- add_void is the list of void tokens with this one in it, for 10 s from now. A long list drops its oldest.
  local function add_void(void, token)
    local tokens = void_lives(void) and string.match(string.sub(void, -1500), ',.*$') or ''
    local added = is_void(tokens, token) and '' or ',' .. token
    return string.format('%.0f', time[1] + 10) .. tokens .. added
  end
  -->
  void = add_void(void, owner)
end
if holder == owner and (how == '0' or how == '1' and sign == '2') then
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
