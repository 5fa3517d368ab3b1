--- LockAcquire acquires a lock for an owner, or adds the owner to the queue of its waiters.
---
--- The lock is one string of eight fields with one space between them: fence, whether a waiter is queued (0 or 1),
--- owner, start of the lease in us, its length and its lock delay in ms, last releaser, note. A free lock has the
--- owner "-". The lease ends by the server's clock. The string stays a minute longer, so that a late release gets its
--- result and the fence grows even when the clock is set back.
---
--- The fence is the server's time in us, or the last fence plus one where that is greater. So it grows with every new
--- holder, and no counter is stored forever.
---
--- An entry of the queue is the owner, the length of its lease in ms, its lock delay in ms, its channel, a line feed
--- and its note. An entry whose channel has no subscriber is removed.
---
--- Long because one call acquires, waits or hands over, which saves a round trip for each.
---
---@contract dup-only  an error half-way leaves the lock with this owner; its repeat returns the lock
---@retry    safe  an owner that holds the lock or waits for it gets that state
---@key      lock   string  as above
---@key      queue  zset  entries of the waiters, scored by priority and arrival; expires
---@arg      owner  string  a token made for this acquire
---@arg      ttl    ms  min=1  the lease
---@arg      keep   ms  min=1  how long the string stays
---@arg      delay  ms  min=0  the lock delay: how long the lock stays taken after a lease without a release
---@arg      band   int  first score of this priority; each has 2^40
---@arg      entry  string  added to the queue if the lock is held; empty not to wait
---@arg      note   string  what other callers read about the holder
---@reply    (acquired bool, place enum(none=0, waiting=1, joined=2), fence int, remaining ms,
---          waiting int, holder string, now int)  place: waiting: the entry was queued before; joined:
---          this call queued it; remaining: of the holder's lease with its lock delay; when acquired, of
---          this owner's lease, 0 for the whole ttl; waiting: the length of the queue, 0 without an
---          entry; holder: its note; now: the server's clock in us, 0 when acquired
---@cost     O(1); O(log n) to wait, n being the number of waiters

local lock, queue = KEYS[1], KEYS[2]
local owner, ttl, keep, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local band, entry, note = ARGV[5], ARGV[6], ARGV[7]

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
--< part/lock_free.lua
-- The fields of a free lock without waiters, between its fence, which has 16 digits, and its
-- last releaser.
local free = ' 0 - 0 0 0 '
-->

local found = redis.call('GET', lock)
local record = found or '0' .. free .. '- '
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
local remaining = start / 1000 + length - now_us / 1000
if remaining > 0 and holder == owner then
  return {1, 0, fence_was, math.max(math.floor(remaining), 1), 0, '', 0}
end
remaining = remaining + rest
local fence = fence_was < now_us and now_us or string.format('%.0f', fence_was + 1)

-- The record may have been lost, and with it the sign that a waiter is queued.
if not found and redis.call('EXISTS', queue) == 1
  or remaining <= 0 and waiting == '0' and entry ~= '' and redis.call('ZSCORE', queue, entry) then
  waiting = '1'
end

--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
end
-->
if remaining <= 0 and waiting == '0' then
  redis.call('SET', lock, lock_record(fence, waiting, owner, now_us, ttl, delay, last, note), 'PX', keep)
  return {1, 0, fence, 0, 0, '', 0}
end

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
-- entry_parts parses an entry of the queue, see lock_acquire.lua.
local function entry_parts(head)
  return string.match(head, '^(%S+) (%d+) (%d+) ([^\n]+)\n(.*)$')
end

-- hand_over gives the free lock to the first waiter that is alive, and notifies the next waiter
-- when to check. It returns the new holder, the length of its lease and its note.
local function hand_over()
  local unreachable, dead = {}, 0
  for _ = 1, 10000 do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    waiting = heads[2] and '1' or '0'
    if not heads[1] then
      return
    end
    local token, lease, pause, channel, text = entry_parts(heads[1])
    local alive = token == owner or not unreachable[channel] and subscribed(channel)
    if alive then
      local record = lock_record(fence, waiting, token, now_us, lease, pause, last, text)
      redis.call('SET', lock, record, 'PX', lease + 60000)
      alive = token == owner
        or notify(channel, 'g ' .. token .. ' ' .. fence .. ' ' .. now_us .. ' ' .. lease)
    end
    redis.call('ZREM', queue, heads[1])
    if alive then
      if heads[2] then
        local second, _, _, other = entry_parts(heads[2])
        if other ~= channel then
          notify(other, 'n ' .. second .. ' ' .. lease)
        end
      end
      return token, tonumber(lease), text
    end
    if not unreachable[channel] then
      unreachable[channel], dead = true, dead + 1
      if dead == 1000 then -- the next call continues
        return
      end
    end
  end
end
-->

local place, score = 0, false
if entry ~= '' then
  place = 1
  if not redis.call('ZSCORE', queue, entry) then
    local top = string.format('%.0f', band + 2 ^ 40 - 1)
    local back = redis.call('ZRANGE', queue, top, band, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    place, score = 2, string.format('%.0f', (back[2] or band) + 1)
  end
  if waiting == '0' then
    -- The sign is written first: without an entry it is harmless, an entry without it is not found.
    waiting = '1'
    redis.call('SET', lock, lock_record(fence_was, waiting, holder, start, length, rest, last, held), 'KEEPTTL')
  end
  if score then
    redis.call('ZADD', queue, score, entry)
  end
  redis.call('PEXPIRE', queue, 120000)
end

if remaining <= 0 then
  local token, lease, text = hand_over()
  if token == owner then
    return {1, 0, fence, lease, 0, '', 0}
  elseif token then
    remaining, held = lease, text
  elseif waiting == '0' then
    -- All in the queue were dead.
    redis.call('SET', lock, lock_record(fence, waiting, owner, now_us, ttl, delay, last, note), 'PX', keep)
    return {1, 0, fence, 0, 0, '', 0}
  else
    redis.call('SET', lock, lock_record(fence, waiting, '-', 0, 0, 0, last, ''), 'PX', keep)
    remaining, held = 1, '' -- too many dead waiters for one call: the next check continues
  end
end
local places = entry ~= '' and redis.call('ZCARD', queue) or 0
return {0, place, fence, math.ceil(remaining), places, held, now_us}
