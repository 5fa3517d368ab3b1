--- SemRelease gives a permit back and gives what is free to those at the head of the queue, or leaves the queue.
---
--- They are told in the same step; see sem_acquire.lua for what the keys hold. A
--- lease that has ended by the clock can still be released while nobody has taken
--- its place.
---
---@contract dup-only  an error half-way leaves the permit with its owner or given back; who was
---          granted one meanwhile is told when its lease has ended
---@retry    safe  the owner that has released is told so for 10 s
---@key      permits  zset  see sem_acquire.lua
---@key      queue  zset  see sem_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      entry  string  leaves the queue, where it waits; empty for none
---@arg      note   string  the note of the owner; empty if it is not known
---@arg      inbox  string  tells the holder that it lost the permit: what its channel is made of,
---          with the first part of its token; empty for none
---@reply    enum(expired=0, released=1, left=3)  expired: it is not known any more; left: it only waited
---@cost     O(log n) for each permit that is granted, 64 at most; n being the number of holders and of those who wait

local permits, queue = KEYS[1], KEYS[2]
local owner, entry, note, inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

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
local limit = (state[2] or 1e15) - 1e15

-- Also where there is no entry: after a write that needs no memory the others are
-- let through on a server that is over its limit.
local left = redis.call('ZREM', queue, entry) == 1

--< part/number.lua
-- number is n as text, with all its digits.
local function number(n)
  return string.format('%.0f', n)
end
-->
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

-- The fraction of a negative score: none where it was given back, .25 where it was taken
-- away, .5 where it was never had.
local released = had > 0 or had < 0 and had % 1 == (inbox == '' and 0 or 0.75)
if had > 0 then
  used = used - weigh(owner)
  local score = string.format('%.2f', inbox == '' and -now or -now - 0.25)
  redis.call('ZADD', permits, score, owner, number(1e15 + used), 'used')
  if note ~= '' then
    redis.call('ZREM', permits, owner .. '\n' .. note)
  end
  if inbox ~= '' then
    notify(inbox .. string.match(owner, '^(.*)%.'), 'r ' .. owner)
  end
elseif had == 0 then
  -- An acquire that is still on its way finds this and takes nothing. The half sets
  -- it apart from one that was released.
  redis.call('ZADD', permits, string.format('%.1f', -now - 0.5), owner)
  redis.call('PEXPIRE', permits, 10000, 'NX')
end
if known then
  bury()
  if redis.call('EXISTS', queue) == 1 then
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
    grant()
  end
end
return released and 1 or left and 3 or 0
