--- LockRelease ends a lease and hands the lock to the first waiter that lives, or leaves the queue.
---
--- The next holder is told in the same step; see lock_acquire.lua for what the
--- strings hold. A lease that has ended by the clock can still be released while
--- nobody took the lock since: then nobody was in between.
---
---@contract dup-only  an error half-way leaves the lock with its owner or with the next, who is told when its lease has ended
---@retry    safe  the owner that released last is told so
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      keep   ms  min=1  how long the string stays
---@arg      entry  string  leaves the queue, where it waits; empty for none
---@reply    enum(expired=0, released=1, taken=2, left=3)  expired: the string is gone; taken: another owner holds it or has held it since; left: it only waited
---@cost     O(log n), n being the number of those who wait

local lock, queue = KEYS[1], KEYS[2]
local owner, keep, entry = ARGV[1], ARGV[2], ARGV[3]

-- A read that counts as a write: after it, the script may use memory on a server
-- that is over its limit, so that a lock is released there too.
local record = redis.call('GETEX', lock, 'PX', keep)
if not record then
  redis.call('ZREM', queue, entry)
  return 0
end

-- The usual case, without taking the rest apart: it is the owner's, and nobody waits.
if string.sub(record, 17, 20 + #owner) == ' 0 ' .. owner .. ' ' then
  redis.call('SET', lock, string.sub(record, 1, 16) .. ' 0 - 0 0 0 ' .. owner .. ' ', 'KEEPTTL')
  return 1
end

local f, waiting, holder, start, length, delay, last =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) ')
if holder ~= owner then
  -- It is another's string, and stays as long as that one needs it.
  if start ~= '0' then
    redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + delay + 60000)
  end
  if redis.call('ZREM', queue, entry) == 1 then
    return 3
  end
  return last == owner and 1 or 2
end

last = owner
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local fence = f < now and now or string.format('%.0f', f + 1)

-- tell says whether anybody listened.
local function tell(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard > 0
end

-- listens says whether anybody would. Whoever listens at a replica hears what is
-- published here and is not counted: it must not hear of a grant that passes it over.
local function listens(channel)
  local count = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not count.err and count[2] > 0
end

local function parse(head)
  return string.match(head, '^(%S+) (%d+) (%d+) ([^\n]+)\n(.*)$')
end

-- grant hands the free lock to the first in the queue that lives, and warns the
-- next one to look after it. It returns the new holder, the length of its lease
-- and its note. This function stands in each script that frees a lock.
local function grant()
  local deaf = {}
  for _ = 1, 10000 do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    waiting = heads[2] and '1' or '0'
    if not heads[1] then
      return
    end
    local token, lease, pause, channel, text = parse(heads[1])
    local alive = false
    if token == owner or not deaf[channel] then
      redis.call('SET', lock, fence .. ' ' .. waiting .. ' ' .. token .. ' ' .. now .. ' ' .. lease .. ' ' .. pause .. ' ' .. last .. ' ' .. text, 'PX', lease + 60000)
      alive = token == owner or listens(channel) and tell(channel, 'g ' .. token .. ' ' .. fence .. ' ' .. now .. ' ' .. lease)
    end
    redis.call('ZREM', queue, heads[1])
    if alive then
      if heads[2] then
        local second, _, _, other = parse(heads[2])
        if other ~= channel then
          tell(other, 'n ' .. second .. ' ' .. lease)
        end
      end
      return token, tonumber(lease), text
    end
    deaf[channel] = true
  end
end

if waiting == '0' or not grant() then
  redis.call('SET', lock, f .. ' ' .. waiting .. ' - 0 0 0 ' .. last .. ' ', 'KEEPTTL')
end
return 1
