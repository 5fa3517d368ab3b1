--- SemResize sets the limit of a semaphore and grants what becomes free to the head of the queue.
---
--- A smaller limit revokes no permit: new permits are granted after enough holders have released theirs.
--- See sem_acquire.lua for the members of the keys.
---
--- A copy of a request that arrives late would set an older limit again. So a caller that had to repeat its request
--- makes it void afterwards, with sem_release.lua: a void request changes nothing.
---
---@contract dup-only  an error half-way leaves the old limit or the new one; a waiter granted a
---          permit meanwhile learns of it after that lease
---@retry    safe  it sets the same limit again, until the request is void
---@key      permits  zset  see sem_acquire.lua
---@key      queue  zset  see sem_acquire.lua
---@arg      size   int  min=1 max=1073741824  the new limit
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@arg      request  string  a token for this request alone
---@reply    int  the limit before, 0 where there was none
---@error    LAYOUT  the key holds no semaphore of this version
---@cost     O(log n) for each permit that is granted, 64 at most, and for each dead waiter ahead, 2000 at
---          most; n being the number of holders and waiters

local permits, queue = KEYS[1], KEYS[2]
local size, channel, request = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not (size and size >= 1 and size <= 2 ^ 30) then
  error('size must be 1 to 1073741824')
end
local owner, ttl = '' -- no owner acquires in this call

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
-- The members of the zset of permits, see sem_acquire.lua. had is the score of the owner's
-- permit, 0 without one.
local micros, now = tonumber(now_us), math.floor(now_us / 1000)
local state = redis.call('ZMSCORE', permits, owner, 'limit', 'used', 'fence')
local had, known = tonumber(state[1] or 0), state[2] or state[3]
local used, fence = (state[3] or 1e15) - 1e15, tonumber(state[4] or 0)
-- Without limit and used there are released permits alone, below 0. Anything else is of another program.
local limit_was = (state[2] or 1e15) - 1e15
local other = not known and redis.call('ZCOUNT', permits, 0, '+inf') > 0
if other or math.min(used, limit_was) < 0 or math.max(used, limit_was) > 2 ^ 30 or fence > 2 ^ 52 then
  return redis.error_reply('LAYOUT the key holds no semaphore of this version')
end
-->
local limit = size
if redis.call('ZSCORE', permits, request) then
  return limit_was -- it is void
end

redis.call('ZREM', queue, '') -- see sem_release.lua

--< part/number.lua
-- number is n as text, with all its digits.
local function number(n)
  return string.format('%.0f', n)
end
-->
--< part/sem_stay.lua
-- stay keeps the permits for a time at least: a lease and a minute, or what is released for its 10 s.
local function stay(ms)
  ms = string.format('%.0f', ms)
  if redis.call('PEXPIRE', permits, ms, 'GT') == 0 then
    redis.call('PEXPIRE', permits, ms, 'NX')
  end
end
-->
--< part/sem_hold.lua
-- weigh returns the weight of a permit, nil for any other member.
local function weigh(member)
  return tonumber((string.match(member, '^[^\n]*:(%d+)$')))
end

-- bury takes back the permits of dead holders, then deletes those released 10 s ago: in that
-- order, so that many released permits do not hide a dead holder. It notes the processes that were
-- handed a permit and never spoke. It reports whether there may be more.
local unreachable = {}
local function bury()
  local found = redis.call('ZRANGE', permits, '(' .. now, 10000 - now, 'BYSCORE', 'REV', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #found, 2 do
    local weight = weigh(found[i])
    if weight and tonumber(found[i + 1]) > 0 then
      used = used - weight
      redis.call('ZADD', permits, number(1e15 + used), 'used', 0, found[i])
      if found[i + 1] % 1 == 0.5 then
        unreachable[string.match(found[i], '^[^.]*')] = true
      end
    end
    redis.call('ZREM', permits, found[i])
  end
  return #found == 200
end

-- hold stores a permit, in one command. The end of a lease that is not confirmed has a half behind it.
local function hold(token, weight, lease, note, unconfirmed)
  fence, used = math.max(fence + 1, micros), used + weight
  local over = number(now + lease) .. (unconfirmed and '.5' or '')
  local sum, bound = number(1e15 + used), number(1e15 + limit)
  if known then
    stay(lease + 60000)
  end
  if note == '' then
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence')
  else
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence',
      over, token .. '\n' .. note)
  end
  if not known then
    stay(lease + 60000)
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

-- subscribed reports whether the channel has a subscriber on this server. A subscriber of a
-- replica receives what is published here and is not counted: it must not be granted what passes it over.
local function subscribed(channel)
  local count = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not count.err and count[2] > 0
end
-->
--< part/sem_notify_beyond.lua
-- notify_beyond notifies the first waiter of another process, within the 16 behind the head, if permits
-- were granted: their process may be dead, with the head.
local function notify_beyond(granted, process, length)
  for _, entry in ipairs(granted > 0 and redis.call('ZRANGE', queue, 1, 16) or {}) do
    local token = string.match(entry, '^(%S+) ') or ''
    if string.match(token, '^[^.]*') ~= process then
      return notify(channel .. string.match(token, '^[^.]*'), 'n ' .. token .. ' ' .. length)
    end
  end
end
-->
--< part/sem_due.lua
-- due returns after how many whole ms enough leases are over for the weight to fit, read from at
-- most 64 members, and the note of the first holder. A permit that is taken away leaves its note without it.
local function due(weight)
  local rest, last, note = used + weight - limit, now, ''
  local ends = redis.call('ZRANGE', permits, now, 1e14, 'BYSCORE', 'LIMIT', 0, 64, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local part = weigh(ends[i])
    if not part then
      local token, text = string.match(ends[i], '^([^\n]*)\n(.*)$')
      note = note == '' and token and token == ends[i - 2] and text or note
    elseif rest <= 0 then
      break
    else
      rest, last = rest - part, ends[i + 1]
    end
  end
  return math.max(math.floor(last) - now + 1, 1), note
end
-->
--< part/sem_grant.lua
-- grant gives permits to the waiters at the head of the queue that fit and are alive, and notifies the first that
-- does not fit when to check. The owner gets its whole ttl, unnotified. It returns the fence of that, if any.
local function grant()
  local granted, tried, mark = 0, 0
  unreachable[string.match(owner, '^[^.]*')] = nil -- it speaks
  for n = 1, 2000 do
    -- In a slot that migrates, a server refuses the queue that is empty by now.
    local head = (n == 1 and redis.call('ZRANGE', queue, 0, 0) or redis.pcall('ZRANGE', queue, 0, 0))[1]
    if not head or tried == 1000 then
      break
    end
    local token, lease, note = string.match(head, '^(%S+) (%d+)\n(.*)$')
    local process = string.match(token or '', '^[^.]*')
    local mine, weight, there = token == owner, weigh(token or '') or 0, channel .. process
    local sound = weight > 0 and #lease <= 13
    if sound and not mine and not unreachable[process] and not subscribed(there) then
      unreachable[process], tried = true, tried + 1
      notify(there, 'n ' .. token .. ' 0') -- it may be subscribed at another server, as after a move of the slot
    end
    sound = sound and (mine or not unreachable[process])
    local score = sound and redis.call('ZSCORE', permits, token)
    if sound and (weight > limit or score and tonumber(score) <= 0) then
      notify(there, 'f ' .. token) -- the waiter learns the other limit, or that the permit was released
      tried = tried + 1
    elseif sound and (used + weight > limit and not score or granted == 64) then
      if mine or notify(there, 'n ' .. token .. ' ' .. (due(weight))) then
        notify_beyond(granted, process, (due(weight)))
        break
      end
    elseif sound then
      hold(token, score and 0 or weight, mine and ttl or tonumber(lease), note, not mine)
      local message = 'g ' .. token .. ' ' .. number(fence) .. ' ' .. now_us .. ' ' .. lease .. ' ' .. permits
      if mine or notify(there, message) then
        mark, granted = mine and fence or mark, granted + 1
      else
        unreachable[process], used = true, used - weight
        redis.call('ZADD', permits, number(1e15 + used), 'used', 0, token)
        redis.call('ZREM', permits, token, token .. '\n' .. note)
      end
    end
    redis.call('ZREM', queue, head)
  end
  return mark
end
-->

redis.call('ZADD', permits, number(1e15 + limit), 'limit')
stay(60000)
known = true
bury()
grant()
return limit_was
