--- LockRelease ends a lease and hands the lock to the first waiter that is alive.
---
--- The script is written for many locks. It deletes a lock without waiters. Otherwise it notifies
--- the next holder in the same step. See lock_acquire.lua for the record. An owner can release an
--- expired lease while its record is stored: then no other holder came between.
---
--- Long because it is written for many locks, and begins with a short way for one.
---
---@merge    max=64
---@contract dup-only  an error half-way leaves the lock with its owner or with the next holder,
---          which learns of it after that lease
---@retry    safe  a repeat finds no record or another holder's
---@key      lock   string  see lock_acquire.lua
---@key      queue  list  see lock_acquire.lua
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
    --< part/lock_read.lua
    -- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
    local fence_was, sign, void, tail, holder, delay, after, note =
      string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
    if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
      return redis.error_reply('LAYOUT the key holds no lock of this version')
    end
    -->
    other[#other + 1] = {i, fence_was, void, holder}
  end
end
if other[1] then
  --< part/now_us.lua
  -- The server's clock in Unix us, as text; see now_ms.lua.
  local time = redis.call('TIME')
  local fraction = time[2]
  if #fraction < 6 then
    fraction = string.sub('00000' .. fraction, -6)
  end
  local now_us = time[1] .. fraction
  -->
  --< part/lock_void.lua
  -- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
  local function is_void(void, token)
    return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
  end
  -->
  --< part/lock_void_lives.lua
  -- void_lives reports whether there are void tokens now.
  local function void_lives(void)
    return void ~= '-' and time[1] <= string.match(void, '^%d*')
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
