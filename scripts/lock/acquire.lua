--- Acquire acquires a lock for an owner, or adds the owner to the queue of its waiters.
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
--< part/floor.lua

if fresh == '2' then
  local places = redis.call('RPUSHX', queue, entry)
  if places > 0 then
    return {0, 2, 0, 0, places, '', 0}
  end
end

--< part/now_us.lua
local found = redis.call('GET', lock)
local record = found or '2 0 0 - - 0 0 '
--< part/read.lua
local owner, kept = string.match(own, '^ (%S+) %d+ (%d+) ')
local left = redis.call('PTTL', lock) - after
--< part/void.lua
if is_void(void, owner) then
  return {0, 3, fence_was, 1, 0, '', now_us}
end
--< part/record.lua
--< part/write.lua
if holder == owner and left > 0 then
  if sign == '2' then
    local life = string.format('%.0f', ttl + after + 1)
    redis.call('PEXPIRE', lock, life) -- a write that needs no memory, see leave.lua
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

--< part/fence_after.lua
--< part/notify.lua
--< part/hand_over.lua
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
