--- SemAcquire acquires a permit of a semaphore for an owner, or adds the owner to the queue of its
--- waiters.
---
--- A semaphore is one zset, so that one command makes each change. Its members:
---
--- token:weight is a permit, scored by the end of its lease in ms. The score has a half added while
--- the holder was handed the permit and has not confirmed it. The lease lasts through the ms of its
--- score, because the clock that began it was rounded down. A released permit is scored by minus
--- the time of its release for 10 s, so that a repeat gets its result. The same member with a line
--- feed and a note after it describes the holder.
---
--- limit and used are scored by 1e15 plus their value. used is the sum of the weights of all
--- permits with a positive score. fence is scored by the last fence: the server's time in us, or
--- one more than the fence before and than the caller's floor if that is greater.
---
--- An entry of the queue is the token with its weight, the lease in ms, a line feed and the note.
--- For tokens and their channels see lock_acquire.lua. No waiter overtakes the head, even if the
--- head needs more than is free. An entry whose channel has no subscriber is removed, and its
--- process notified, which may be subscribed at another server.
---
--- A read-write lock is a semaphore whose writer acquires the whole limit.
---
--- Long because one call acquires, waits or hands over, which saves a round trip for each.
---
---@contract dup-only  an error half-way leaves the permit with this owner; its repeat returns the permit
---@allow    V001 permits: each grant has a new fence
---@retry    safe  an owner that holds a permit or waits for one gets that state
---@key      permits  zset  as above
---@key      queue  zset  entries of the waiters, scored by arrival; expires
---@arg      owner  string  token:weight, made for this acquire
---@arg      limit  int  min=1 max=1073741824  of the sum of weights; the stored limit prevails
---@arg      ttl    ms  min=1 max=1000000000000  the lease
---@arg      entry  string  added to the queue if the permit does not fit; empty not to wait
---@arg      note   string  what other callers read about the holder
---@arg      channel  string  prefix of the channel of a process; the first part of a token follows
---@arg      floor  int  min=0 max=4503599627370495  the fence is greater
---@reply    (acquired bool, place enum(none=0, waiting=1, joined=2, refused=3, void=4), fence int,
---          remaining ms, waiting int, holder string, now int, limit int)  place: waiting:
---          the entry was queued before; joined: this call queued it; refused: the weight is
---          above the limit; void: the owner has released its permit, or lost it by force; remaining: of the
---          lease, or until the head of the queue fits; waiting: the length of the queue, 0 without an entry;
---          holder: the note of one holder; now: the server's clock in us; limit: the stored limit
---@error    LAYOUT  the key holds no semaphore of this version
---@cost     O(log n), n being the number of holders and waiters; that for each dead waiter ahead, 2000 at most

local permits, queue = KEYS[1], KEYS[2]
local owner, limit, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local entry, note, channel, floor = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
if not (limit and limit >= 1 and limit <= 2 ^ 30) then
  error('limit must be 1 to 1073741824')
end
if not (ttl and ttl >= 1 and ttl <= 1e12) then
  error('ttl must be 1 to 1e12 ms')
end
--< part/lock_floor.lua
-- The bounds of the header hold for a call that was not made in Go, too.
local least = tonumber(floor)
if not (least and least >= 0 and least < 2 ^ 52) then
  error('floor must be 0 to 4503599627370495')
end
-->

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
limit = state[2] and limit_was or limit
fence = math.max(fence, least)
local head = redis.call('ZRANGE', queue, 0, 0)[1]

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
local weight = weigh(owner)
if had >= now then
  redis.call('ZREM', queue, entry)
  if had % 1 == 0.5 then
    hold(owner, 0, ttl, note) -- it was handed the permit, and speaks for the first time
    had = now + ttl
  else
    fence = math.max(fence + 1, micros)
    redis.call('ZADD', permits, number(fence), 'fence')
  end
  return {1, 0, number(fence), had - now, 0, '', now_us, limit}
elseif had < 0 then -- the release of this owner came before this call
  return {0, 4, '0', 1, 0, '', now_us, limit}
end
if weight > limit then
  redis.call('ZREM', queue, entry)
  return {0, 3, '0', 0, 0, '', now_us, limit}
end

if had > 0 then
  -- Its own lease is over, and counts no more: bury may not reach it.
  used = used - weight
  redis.call('ZADD', permits, number(1e15 + used), 'used', 0, owner)
  redis.call('ZREM', permits, owner)
end
local more = bury()
for _ = 1, 15 do -- many dead holders do not keep a permit from one that lives
  more = more and used + weight > limit and bury()
end
if not head and used + weight <= limit then
  hold(owner, weight, ttl, note)
  return {1, 0, number(fence), ttl, 0, '', now_us, limit}
end

local place = 0
if entry ~= '' then
  place = 1
  if not redis.call('ZSCORE', queue, entry) then
    local back = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    place = 2
    redis.call('ZADD', queue, number((back[2] or 0) + 1), entry)
  end
  redis.call('PEXPIRE', queue, 120000)
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
-- grant also checks that a head that does not fit is alive. Only a caller that the head
-- holds up runs it, not one that has to wait anyway.
if head and (place == 1 or used + weight <= limit or used + (weigh(string.match(head, '^%S*')) or 0) <= limit) then
  local mark = grant()
  if not mark and entry == '' and used + weight <= limit and redis.pcall('EXISTS', queue) ~= 1 then
    hold(owner, weight, ttl, note) -- all waiters were dead
    mark = fence
  end
  if mark then
    return {1, 0, number(mark), ttl, 0, '', now_us, limit}
  end
end
local first = redis.pcall('ZRANGE', queue, 0, 0)[1] -- see grant
local remaining, holder = due(first and weigh(string.match(first, '^%S*')) or weight)
local places = entry ~= '' and redis.call('ZCARD', queue) or 0
return {0, place, number(fence), remaining, places, holder, now_us, limit}
