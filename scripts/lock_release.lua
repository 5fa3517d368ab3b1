--- LockRelease ends a lease and hands the lock to the first waiter that is alive, or removes an entry from the queue.
---
--- It notifies the next holder in the same step; see lock_acquire.lua for the fields of the string. An owner can
--- release an expired lease while no other owner has acquired the lock since: then no other holder came between.
---
---@contract dup-only  an error half-way leaves the lock with its owner or with the next holder,
---          which learns of it after that lease
---@retry    safe  the owner that released last gets released again
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      keep   ms  min=1  how long the string stays
---@arg      entry  string  removed from the queue if the owner waits; empty for none
---@reply    enum(expired=0, released=1, taken=2, left=3)  expired: the string does not exist;
---          taken: another owner holds the lock or has held it since; left: the owner only waited
---@cost     O(log n), n being the number of waiters

local lock, queue = KEYS[1], KEYS[2]
local owner, keep, entry = ARGV[1], ARGV[2], ARGV[3]

-- This read counts as a write. After it, the script may use memory on a server over its
-- limit, so that a lock is released there too.
local record = redis.call('GETEX', lock, 'PX', keep)
if not record then
  redis.call('ZREM', queue, entry)
  return 0
end

--< part/lock_free.lua
-- The fields of a free lock without waiters, between its fence, which has 16 digits, and its
-- last releaser.
local free = ' 0 - 0 0 0 '
-->
-- The usual case, without parsing the other fields: the owner holds the lock, and no waiter
-- is queued.
if string.sub(record, 17, 20 + #owner) == ' 0 ' .. owner .. ' ' then
  redis.call('SET', lock, string.sub(record, 1, 16) .. free .. owner .. ' ', 'KEEPTTL')
  return 1
end

--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
if holder ~= owner then
  --< part/lock_keep.lua
  -- The record belongs to another owner, and stays as long as that owner needs it.
  if start ~= '0' then
    redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + rest + 60000)
  end
  -->
  if redis.call('ZREM', queue, entry) == 1 then
    return 3
  end
  return last == owner and 1 or 2
end

last = owner
--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
local fence = fence_was < now_us and now_us or string.format('%.0f', fence_was + 1)

--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
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

if waiting == '0' or not hand_over() then
  redis.call('SET', lock, lock_record(fence_was, waiting, '-', 0, 0, 0, last, ''), 'KEEPTTL')
end
return 1
