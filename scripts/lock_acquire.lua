--- LockAcquire takes a lock for an owner, or joins the queue of those who wait for it.
---
--- The lock is one string: fence, whether somebody waits (0 or 1), owner, start of
--- the lease in microseconds, its length and its lock delay in ms, who released
--- last, note; one space between them. A free lock has the owner "-". The lease
--- ends by the clock; the string stays a minute longer, so that a late release gets
--- its answer and the fence grows even when the clock is set back.
---
--- The fence is the server's time in microseconds, or one more than the last one
--- where that is greater. So it grows with every new holder although no counter
--- stays behind.
---
--- An entry of the queue is the owner, length of the lease that is granted in ms,
--- lock delay in ms, channel, line feed and note. Those without a listener are
--- passed over.
---
---@contract dup-only  an error half-way leaves the lock with this owner, whose repeat finds it its own
---@retry    safe  an owner that holds the lock or waits for it is told so
---@key      lock   string  as above
---@key      queue  zset  entries of those who wait, scored by priority and arrival; expires
---@arg      owner  string  a token of this acquire alone
---@arg      ttl    ms  min=1  the lease
---@arg      keep   ms  min=1  how long the string stays
---@arg      delay  ms  min=0  how long the lock rests after a lease that was not released
---@arg      band   int  first score of this priority; each has 2^40
---@arg      entry  string  waits where the lock is held; empty to wait for nothing
---@arg      note   string  what others are told of the holder
---@reply    (acquired bool, place enum(none=0, waiting=1, joined=2), fence int, remaining ms, waiting int, holder string, now int)  remaining: the other's lease with its lock delay, or this owner's when it had the lock before or is handed it, 0 for all of ttl; place: in the queue, joined by this call; waiting: how many, 0 when not asked; holder: its note; now: the clock in microseconds, 0 when acquired
---@cost     O(1); O(log n) to wait, n being the number of those who wait

local lock, queue = KEYS[1], KEYS[2]
local owner, ttl, keep, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local band, entry, note = ARGV[5], ARGV[6], ARGV[7]

-- As text: turning numbers into text is what costs most here.
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local record = redis.call('GET', lock)
local fence, waiting, last, remaining, held = now, '0', '-', 0, ''
if record then
  local f, w, holder, start, length, rest, released, text =
    string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  local left = start / 1000 + length - now / 1000
  if left > 0 and holder == owner then
    return {1, 0, f, math.max(math.floor(left), 1), 0, '', 0}
  end
  waiting, last, held = w, released, text
  remaining = left + rest
  if f >= now then
    fence = string.format('%.0f', f + 1)
  end
elseif redis.call('EXISTS', queue) == 1 then
  waiting = '1'
end

local function take()
  redis.call('SET', lock, fence .. ' ' .. waiting .. ' ' .. owner .. ' ' .. now .. ' ' .. ttl .. ' ' .. delay .. ' ' .. last .. ' ' .. note, 'PX', keep)
  return {1, 0, fence, 0, 0, '', 0}
end

if remaining <= 0 and waiting == '0' and entry ~= '' and redis.call('ZSCORE', queue, entry) then
  waiting = '1' -- the string was lost, and with it the sign
end
if remaining <= 0 and waiting == '0' then
  return take()
end

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

local place, score = 0, false
if entry ~= '' then
  place = 1
  if not redis.call('ZSCORE', queue, entry) then
    local back = redis.call('ZRANGE', queue, string.format('%.0f', band + 2 ^ 40 - 1), band, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    place, score = 2, string.format('%.0f', (back[2] or band) + 1)
  end
  if waiting == '0' then
    -- First: a sign without an entry is harmless, an entry without it is not seen.
    waiting = '1'
    redis.call('SET', lock, string.gsub(record, ' 0', ' 1', 1), 'KEEPTTL')
  end
  if score then
    redis.call('ZADD', queue, score, entry)
  end
  redis.call('PEXPIRE', queue, 120000)
end

if remaining <= 0 then
  local holder, lease, text = grant()
  if holder == owner then
    return {1, 0, fence, lease, 0, '', 0}
  elseif holder then
    remaining, held = lease, text
  elseif entry == '' then
    return take() -- the queue was of the dead
  else
    redis.call('SET', lock, fence .. ' ' .. waiting .. ' - 0 0 0 ' .. last .. ' ', 'PX', keep)
    remaining, held = 1, '' -- so many dead that the rest is for the next look
  end
end
local length = entry ~= '' and redis.call('ZCARD', queue) or 0
return {0, place, fence, math.ceil(remaining), length, held, now}
