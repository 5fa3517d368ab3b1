--- LockForce takes a lock away from its holder, for another owner or for the next waiter in the queue.
---
--- The script notifies the old holder, if it is subscribed. The next extend of the old holder finds the lock taken.
--- The fence grows, so late writes of the old holder can be refused.
--- A new owner also gets a lock that is free or in its lock delay.
---
---@contract dup-only  an error half-way leaves the lock with its old holder or with the new one
---@retry    safe  an owner that holds the lock already gets its fence; without a new owner a repeat may
---          end the next lease, unless the fence is given
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      fence  int  min=0  of the holder to remove; 0 for any holder
---@arg      owner  string  the new owner; "-" to release
---@arg      ttl    ms  min=1  the lease of the new owner
---@arg      delay  ms  min=0  its lock delay
---@arg      inbox  string  prefix of a holder's channel; the first part of its token follows
---@arg      note   string  the note of the new owner
---@reply    (done bool, fence int, holder string)  done: a holder lost the lock; fence: the new
---          fence, 0 when nothing was changed; holder: the note of the old holder
---@cost     O(log n), n being the number of waiters

local lock, queue = KEYS[1], KEYS[2]
local fence, owner, ttl, delay, inbox, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

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

-- The member does not exist: a write that needs no memory, see lock_release.lua.
redis.call('ZREM', queue, '')
local record = redis.call('GET', lock) or '0' .. free .. '- '
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
if holder == owner and owner ~= '-' then
  return {0, fence_was, ''}
end
local done = start / 1000 + length > now_us / 1000
if fence ~= '0' and fence_was ~= fence or owner == '-' and not done then
  return {0, '0', held}
end
fence = fence_was < now_us and now_us or string.format('%.0f', fence_was + 1)

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

last = '-' -- the old holder did not release it
if owner ~= '-' then
  redis.call('SET', lock, lock_record(fence, waiting, owner, now_us, ttl, delay, last, note), 'PX', ttl + 60000)
elseif waiting == '0' or not hand_over() then
  redis.call('SET', lock, lock_record(fence_was, waiting, '-', 0, 0, 0, last, ''), 'PX', 60000)
end
local home = string.match(holder, '^(.+)%.')
if done and home then
  notify(inbox .. home, 'r ' .. holder .. ' ' .. lock)
end
return {done and 1 or 0, fence, held}
