--- SemAcquire takes a permit of a semaphore for an owner, or joins the queue of those who wait for one.
---
--- A semaphore is one zset, so that each change of it is one command. The members:
---
--- token:weight is a permit, scored by the end of its lease in ms. After it was
--- given back the score is minus the time of that for 10 s, so that a repeat gets
--- its answer. With a line feed and a note behind, it is what others are told of
--- the holder.
---
--- limit and used are scored by 1e15 and their value, fence by the last fence: the
--- server's time in microseconds, or one more than the last one where that is
--- greater. used is the sum of the weights whose score is positive.
---
--- An entry of the queue is as in lock_acquire.lua. Nobody overtakes the head, even
--- if it needs more than is free. Those without a listener are passed over.
---
--- A read-write lock is a semaphore whose writer takes all of it.
---
--- Long because one call takes, waits or hands over: a round trip less for each.
---
---@contract dup-only  an error half-way leaves the permit with this owner, whose repeat finds it its own
---@retry    safe  an owner that holds a permit or waits for one is told so
---@key      permits  zset  as above
---@key      queue  zset  entries of those who wait, scored by priority and arrival; expires
---@arg      owner  string  token:weight, made for this acquire alone
---@arg      limit  int  min=1 max=1073741824  of the sum of weights; the first one stays
---@arg      ttl    ms  min=1  the lease
---@arg      band   int  first score of this priority; each has 2^40
---@arg      entry  string  waits where there is no room; empty to wait for nothing
---@arg      note   string  what others are told of the holder
---@reply    (acquired bool, place enum(none=0, waiting=1, joined=2, refused=3), fence int,
---          remaining ms, waiting int, holder string, now int, limit int)  remaining: the lease's,
---          or how long until the head of the queue fits; place: in the queue, joined by this call,
---          or refused because the limit is another; waiting: how many, 0 when not asked; holder:
---          the note of one; now: the clock in microseconds; limit: the semaphore's
---@cost     O(log n), n being the number of holders and of those who wait

local permits, queue = KEYS[1], KEYS[2]
local owner, limit, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local band, entry, note = ARGV[4], ARGV[5], ARGV[6]
if not (limit and limit >= 1 and limit <= 2 ^ 30) then
  error('limit must be 1 to 1073741824')
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
--< part/sem_state.lua
-- What the zset of permits holds, see sem_acquire.lua; had is the score of the owner's
-- permit, 0 without one.
local micros, now = tonumber(now_us), math.floor(now_us / 1000)
local state = redis.call('ZMSCORE', permits, owner, 'limit', 'used', 'fence')
local had, known = tonumber(state[1] or 0), state[2] or state[3]
local used, fence = (state[3] or 1e15) - 1e15, tonumber(state[4] or 0)
-->
local stored = state[2] and state[2] - 1e15
local head = redis.call('ZRANGE', queue, 0, 0)[1]

--< part/number.lua
-- number is n as text, with all its digits.
local function number(n)
  return string.format('%.0f', n)
end
-->
if had > now then
  fence = math.max(fence + 1, micros)
  redis.call('ZADD', permits, number(fence), 'fence')
  redis.call('ZREM', queue, entry)
  return {1, 0, number(fence), had - now, 0, '', now_us, limit}
elseif had < 0 then -- this call comes after the one that gave back what it might get
  return {0, 0, '0', 1, 0, '', now_us, limit}
end

--< part/sem_stay.lua
-- stay keeps the permits for a minute longer than a lease, and never less than before.
local function stay(lease)
  if redis.call('PEXPIRE', permits, lease + 60000, 'GT') == 0 then
    redis.call('PEXPIRE', permits, lease + 60000, 'NX')
  end
end
-->
--< part/sem_hold.lua
-- weigh is the weight of a permit, nil for any other member.
local function weigh(member)
  return tonumber((string.match(member, '^[^\n]*:(%d+)$')))
end

-- bury takes back what dead holders had, and forgets what was given back 10 s ago: in
-- that order, so that many of those do not hide a dead one.
local function bury()
  local found = redis.call('ZRANGE', permits, now, 10000 - now, 'BYSCORE', 'REV', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #found, 2 do
    local weight = weigh(found[i])
    if weight and tonumber(found[i + 1]) > 0 then
      used = used - weight
      redis.call('ZADD', permits, number(1e15 + used), 'used', 0, found[i])
    end
    redis.call('ZREM', permits, found[i])
  end
end

-- hold gives a permit, in one command.
local function hold(token, weight, lease, note)
  fence, used = math.max(fence + 1, micros), used + weight
  local over, sum, bound = number(now + lease), number(1e15 + used), number(1e15 + limit)
  if known then
    stay(lease)
  end
  if note == '' then
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence')
  else
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence',
      over, token .. '\n' .. note)
  end
  if not known then
    stay(lease)
  end
  known = true
end
-->
local weight = weigh(owner)
local queued = entry ~= '' and redis.call('ZSCORE', queue, entry)
if stored and stored ~= limit and (not queued or weight > stored) then
  redis.call('ZREM', queue, entry)
  return {0, 3, '0', 0, 0, '', now_us, stored}
end
limit = stored or limit

bury()
if not head and used + weight <= limit then
  hold(owner, weight, ttl, note)
  return {1, 0, number(fence), ttl, 0, '', now_us, limit}
end

local place = 0
if entry ~= '' then
  place = 1
  if not queued then
    local top = number(band + 2 ^ 40 - 1)
    local back = redis.call('ZRANGE', queue, top, band, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    place = 2
    redis.call('ZADD', queue, number((back[2] or band) + 1), entry)
  end
  redis.call('PEXPIRE', queue, 120000)
end

--< part/notify.lua
-- notify reports whether the message was received.
local function notify(channel, message)
  local receivers = redis.pcall('PUBLISH', channel, message)
  return type(receivers) == 'number' and receivers > 0
end

-- subscribed reports whether it would be. A subscriber of a replica receives what is
-- published here and is not counted: it must not receive a grant that passes it over.
local function subscribed(channel)
  local count = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not count.err and count[2] > 0
end
-->
--< part/sem_grant.lua
-- due is in how many ms enough leases are over for that weight to fit, as far as 64
-- holders tell, and the note of the first.
local function due(weight)
  local rest, last, note = used + weight - limit, now, ''
  local ends = redis.call('ZRANGE', permits, '(' .. now, 1e14, 'BYSCORE', 'LIMIT', 0, 64, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local part = weigh(ends[i])
    if not part then
      note = note ~= '' and note or string.match(ends[i], '\n(.*)$') or ''
    elseif rest <= 0 then
      break
    else
      rest, last = rest - part, ends[i + 1]
    end
  end
  return math.max(last - now, 1), note
end

-- grant gives permits to the waiters at the head of the queue, as many as fit and are
-- alive. The first that does not fit is notified when to check. It returns the lease and
-- the fence of the owner where that is among them.
local function grant()
  local mine, mark
  local granted = 0
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      break
    end
    local token, lease, channel, note = string.match(head, '^(%S+) (%d+) %d+ ([^\n]+)\n(.*)$')
    local weight, length = weigh(token), tonumber(lease)
    local score = redis.call('ZSCORE', permits, token)
    if weight > limit then
      notify(channel, 'f ' .. token) -- it learns that the limit is another
    elseif score and tonumber(score) <= 0 then
      notify(channel, 'f ' .. token) -- given back
    elseif used + weight > limit and not score or granted == 64 then
      if token == owner
        or subscribed(channel) and notify(channel, 'n ' .. token .. ' ' .. (due(weight))) then
        break
      end
    else
      hold(token, score and 0 or weight, length, note)
      if token == owner then
        mine, mark, granted = length, fence, granted + 1
      elseif subscribed(channel)
        and notify(channel, 'g ' .. token .. ' ' .. number(fence) .. ' ' .. number(micros) .. ' ' .. lease) then
        granted = granted + 1
      else
        used = used - weight
        redis.call('ZADD', permits, number(1e15 + used), 'used', 0, token)
        redis.call('ZREM', permits, token, token .. '\n' .. note)
      end
    end
    redis.call('ZREM', queue, head)
  end
  return mine, mark
end
-->
-- A head for which there is no room is asked for a sign of life by the waiters that it
-- holds up, not by those that would have to wait anyway.
if head and (place == 1 or used + weight <= limit or used + weigh(string.match(head, '^(%S+) ')) <= limit) then
  local lease, mark = grant()
  if not lease and entry == '' and used + weight <= limit and redis.call('EXISTS', queue) == 0 then
    hold(owner, weight, ttl, note) -- all in the queue were dead
    lease, mark = ttl, fence
  end
  if lease then
    return {1, 0, number(mark), lease, 0, '', now_us, limit}
  end
end
local first = redis.call('ZRANGE', queue, 0, 0)[1]
local remaining, holder = due(first and weigh(string.match(first, '^(%S+) ')) or weight)
local places = entry ~= '' and redis.call('ZCARD', queue) or 0
return {0, place, number(fence), remaining, places, holder, now_us, limit}
