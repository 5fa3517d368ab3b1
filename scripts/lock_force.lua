--- LockForce takes a lock away from its holder, for another owner or for the next in the queue.
---
--- The old holder is told at once if it listens; its next extend finds the lock
--- taken. The fence grows, so what the old holder still writes can be told apart.
--- A new owner gets a lock that is free or rests as well.
---
---@contract dup-only  an error half-way leaves the lock with its old holder or with the new one
---@retry    safe  an owner that holds the lock already is told so; without a new owner a repeat may hit the next holder, unless the fence is given
---@key      lock   string  see lock_acquire.lua
---@key      queue  zset  see lock_acquire.lua
---@arg      fence  int  min=0  only the holder with this fence; 0 for whoever holds it
---@arg      owner  string  the new owner; "-" to release
---@arg      ttl    ms  min=1  the lease of the new owner
---@arg      delay  ms  min=0  its lock delay
---@arg      inbox  string  what the channel of a holder is made of, with the first part of its token
---@arg      note   string  the note of the new owner
---@reply    (done bool, fence int, holder string)  done: it was taken from somebody; fence: the new one, 0 when nothing was changed; holder: the note of the old one
---@cost     O(log n), n being the number of those who wait

local lock, queue = KEYS[1], KEYS[2]
local fence, owner, ttl, delay, inbox, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

-- The member does not exist: a write that needs no memory, see lock_release.lua.
redis.call('ZREM', queue, '')
local record = redis.call('GET', lock)
local f, waiting, holder, start, length, _, last, held = '0', '0', '-', '0', '0', '0', '-', ''
if record then
  f, waiting, holder, start, length, _, last, held =
    string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
end
if holder == owner and owner ~= '-' then
  return {0, f, ''}
end
local done = start / 1000 + length > now / 1000
if fence ~= '0' and f ~= fence or owner == '-' and not done then
  return {0, '0', held}
end
fence = f < now and now or string.format('%.0f', f + 1)

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

last = '-' -- a forced end is no release
if owner ~= '-' then
  redis.call('SET', lock, fence .. ' ' .. waiting .. ' ' .. owner .. ' ' .. now .. ' ' .. ttl .. ' ' .. delay .. ' ' .. last .. ' ' .. note, 'PX', ttl + 60000)
elseif waiting == '0' or not grant() then
  redis.call('SET', lock, f .. ' ' .. waiting .. ' - 0 0 0 ' .. last .. ' ', 'PX', 60000)
end
local home = string.match(holder, '^(.+)%.')
if done and home then
  tell(inbox .. home, 'r ' .. holder .. ' ' .. lock)
end
return {done and 1 or 0, fence, held}
