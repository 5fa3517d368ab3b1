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
--- For tokens and their channels see acquire.lua. No waiter overtakes the head, even if the
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
--< part/floor.lua

--< part/now_us.lua
--< part/sem_state.lua
limit = state[2] and limit_was or limit
fence = math.max(fence, least)
local head = redis.call('ZRANGE', queue, 0, 0)[1]

--< part/number.lua
--< part/sem_stay.lua
--< part/sem_hold.lua
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
--< part/sem_notify_beyond.lua
--< part/sem_due.lua
--< part/sem_grant.lua
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
