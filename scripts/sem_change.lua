--- SemChange exchanges a permit for one of another weight, if there is room for that, and gives what becomes free to those at the head of the queue.
---
--- Those who wait are overtaken: while the owner holds on to what it has, they could
--- not go on either. See sem_acquire.lua for what the keys hold.
---
---@contract dup-only  an error half-way leaves the old permit or the new one
---@retry    safe  an owner that has the new permit is told so
---@key      permits  zset  see sem_acquire.lua
---@key      queue  zset  see sem_acquire.lua
---@arg      former  string  the token that acquired the old one
---@arg      owner  string  token:weight of the new one
---@arg      ttl    ms  min=1  its lease
---@arg      note   string  what others are told of the holder
---@reply    (state enum(expired=0, changed=1, held=2), fence int, remaining ms)  expired: the old permit is not held any more; held: others hold what it takes; remaining: the lease's, or how long until there may be room
---@cost     O(log n) for each permit that is granted, 64 at most; n being the number of holders and of those who wait

local permits, queue = KEYS[1], KEYS[2]
local former, owner, ttl, note = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local time = redis.call('TIME')
local micros = time[1] * 1e6 + time[2]
local now = math.floor(micros / 1000)

local state = redis.call('ZMSCORE', permits, owner, 'limit', 'used', 'fence', former)
local known = state[2] or state[3]
local limit = (state[2] or 1e15) - 1e15
local used = (state[3] or 1e15) - 1e15
local fence = tonumber(state[4] or 0)

redis.call('ZREM', queue, '') -- see sem_release.lua

local function number(n)
  return string.format('%.0f', n)
end

-- weigh is the weight of a permit, nil for any other member.
local function weigh(member)
  return tonumber((string.match(member, '^[^\n]*:(%d+)$')))
end

-- stay keeps the permits for a minute longer than a lease, and never less than
-- before.
local function stay(lease)
  if redis.call('PEXPIRE', permits, lease + 60000, 'GT') == 0 then
    redis.call('PEXPIRE', permits, lease + 60000, 'NX')
  end
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

-- hold gives a permit, in one command.
local function hold(token, weight, lease, note)
  fence, used = math.max(fence + 1, micros), used + weight
  if known then
    stay(lease)
  end
  if note == '' then
    redis.call('ZADD', permits, number(now + lease), token, number(1e15 + used), 'used', number(1e15 + limit), 'limit', number(fence), 'fence')
  else
    redis.call('ZADD', permits, number(now + lease), token, number(1e15 + used), 'used', number(1e15 + limit), 'limit', number(fence), 'fence', number(now + lease), token .. '\n' .. note)
  end
  if not known then
    stay(lease)
  end
  known = true
end

-- grant gives permits to those at the head of the queue, as many as fit and live.
-- The first who does not fit is told when to look. It returns the lease and the
-- fence of the owner where that is among them. These functions stand in each script
-- that frees permits.
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
    local had = redis.call('ZSCORE', permits, token)
    if weight > limit then
      tell(channel, 'f ' .. token) -- it learns that the limit is another
    elseif had and tonumber(had) <= 0 then
      tell(channel, 'f ' .. token) -- given back
    elseif used + weight > limit and not had or granted == 64 then
      if token == owner or tell(channel, 'n ' .. token .. ' ' .. (due(weight))) then
        break
      end
    else
      hold(token, had and 0 or weight, length, note)
      if token == owner then
        mine, mark, granted = length, fence, granted + 1
      elseif listens(channel) and tell(channel, 'g ' .. token .. ' ' .. number(fence) .. ' ' .. number(micros) .. ' ' .. lease) then
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

local had = tonumber(state[1] or 0)
if had > now then
  fence = math.max(fence + 1, micros)
  redis.call('ZADD', permits, number(fence), 'fence')
  return {1, number(fence), had - now}
elseif had < 0 or tonumber(state[5] or 0) <= now then
  return {0, '0', 0}
end
bury()
local weight, before = weigh(owner), weigh(former)
if used - before + weight > limit then
  return {2, '0', (due(weight - before))}
end
stay(ttl)
fence, used = math.max(fence + 1, micros), used - before + weight
redis.call('ZADD', permits, number(now + ttl), owner, number(-now), former, number(1e15 + used), 'used', number(fence), 'fence')
if note ~= '' then
  redis.call('ZREM', permits, former .. '\n' .. note)
  redis.call('ZADD', permits, number(now + ttl), owner .. '\n' .. note)
end
local last = number(fence)
grant()
return {1, last, ttl}
