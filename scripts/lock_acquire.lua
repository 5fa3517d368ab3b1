--- LockAcquire acquires a lock for an owner, or adds the owner to the queue of its waiters.
---
--- The record of a lock is one string of eight fields with one space between them: the version,
--- which is 2; the fence; a sign; void tokens; the owner; its lock delay and the afterlife of the
--- record in ms; a note. The lease is over when what is left of the string's TTL is the afterlife.
--- The afterlife is at least as long as the lock delay.
---
--- The sign is 0 when nobody waits, and 1 when a waiter is queued or the fence is ahead of the
--- clock. 2 is as 1, and the owner was handed the lock and has not confirmed it. Void tokens are
--- "-", or the second at which the list ends and then tokens, each after a comma. A void token gets
--- and holds nothing. A free lock has no record, or the owner "-" if void tokens or the fence must
--- stay.
---
--- The fence is the server's time in us, or one more than the last fence and than the caller's
--- floor if that is greater.
---
--- An entry of the queue is the lease in ms and the record from the owner on. A token is the name
--- of a process, a dot and a number. The channel of a process has the name of the process. An entry
--- whose process has no subscriber is removed, and the process notified, which may be subscribed at
--- another server.
---
--- Long because one call acquires, waits or hands over, which saves a round trip for each.
---
---@contract dup-only  an error half-way leaves the lock with this owner; its repeat returns the lock
---@retry    safe  an owner that holds the lock gets it; a second entry is granted to nobody, and given back
---@key      lock   string  as above
---@key      queue  list  entries of the waiters in order of arrival; expires
---@arg      own    string  the record from the owner on, with a space before it
---@arg      ttl    ms  min=1 max=1000000000000  the lease
---@arg      floor  int  min=0 max=4503599627370495  the fence is greater
---@arg      entry  string  added to the queue if the lock is held; empty not to wait
---@arg      fresh  enum(again=0, asks=1, knows=2)  whether the entry may be in the queue already; knows: it is
---          not, and the caller knows how long the lock is held at most
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@reply    (acquired bool, place enum(none=0, waiting=1, joined=2, void=3), fence int, remaining ms,
---          waiting int, holder string, now int)  place: waiting: the entry was queued before; joined:
---          this call queued it; void: the owner gets nothing; remaining: of the holder's lease with its
---          lock delay, 0 where the caller knows; when acquired, of this owner's lease, 0 for the whole
---          ttl; waiting: the length of the queue, 0 without an entry; holder: its note; now: the
---          server's clock in us, 0 where the caller knows
---@allow    T001 the grant of a second entry is given back, as nobody waits for it
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1); O(n) of the waiters for an entry that may be queued already

local lock, queue = KEYS[1], KEYS[2]
local own, ttl, floor, entry, fresh, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if not (ttl and ttl >= 1 and ttl <= 1e12) then
  error('ttl must be 1 to 1e12 ms')
end
--< part/lock_floor.lua
-- The bounds of the header hold for a call that was not made in Go, too.
local least = tonumber(floor)
if not (least and least >= 0 and least < 2 ^ 52) then
  error('floor must be 0 to 4503599627370495')
end
-->

if fresh == '2' then
  local places = redis.call('RPUSHX', queue, entry)
  if places > 0 then
    return {0, 2, 0, 0, places, '', 0}
  end
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
local owner, kept = string.match(own, '^ (%S+) %d+ (%d+) ')
local left = redis.call('PTTL', lock) - after
--< part/lock_void.lua
-- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
local function is_void(void, token)
  return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
end
-->
if is_void(void, owner) then
  return {0, 3, fence_was, 1, 0, '', now_us}
end
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
if holder == owner and left > 0 then
  if sign == '2' then
    local life = string.format('%.0f', ttl + after + 1)
    redis.call('PEXPIRE', lock, life) -- a write that needs no memory, see lock_leave.lua
    lock_write(lock, fence_was, 1, void, tail, life)
    left = 0
  end
  return {1, 0, fence_was, left, 0, '', now_us}
end
left = holder ~= '-' and left + delay or 0

local place, places = 0, 0
local waits = left <= 0 and redis.call('EXISTS', queue) == 1
if entry ~= '' and (left > 0 or waits) then
  places = redis.call('LLEN', queue) -- a key of another type stops the call here
  place = fresh == '0' and redis.call('LPOS', queue, entry) and 1 or 2
  if left > 0 and sign == '0' then
    -- The sign is written first: without an entry it is harmless, an entry without it is not found.
    redis.call('SET', lock, lock_record(fence_was, 1, void, tail), 'KEEPTTL')
  end
  if place == 2 then
    places = redis.call('RPUSH', queue, entry)
  end
  redis.call('PEXPIRE', queue, 120000)
end
if left > 0 then
  return {0, place, fence_was, left, places, note, now_us}
end

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
local fence = fence_after(fence_was, floor)
-- A holder that was handed the lock and never spoke is dead, with all its process waits for.
local dead = sign == '2' and string.match(holder, '^[^.]*') or ''
if dead == string.match(owner, '^[^.]*') then
  dead = '' -- it speaks
end
local token, lease, text
if waits then
  token, lease, text = hand_over(lock, queue, channel, fence, void, dead, owner, ttl)
end
if token == nil or token == owner then
  if token == nil then
    lock_write(lock, fence, 0, void, own, ttl + kept + 1)
  end
  return {1, 0, fence, 0, 0, '', now_us}
elseif not token then -- too many dead waiters for one call: the next check continues
  lock_write(lock, fence, 1, void, ' - 0 0 ', 60000)
  return {0, place, fence, 1, places, '', now_us}
end
return {0, place, fence, tonumber(lease), places, text, now_us}
