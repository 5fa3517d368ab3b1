--- SemInfo reads the holders of a semaphore and its waiters.
---
---@readonly
---@key      permits  zset  see sem_acquire.lua
---@key      queue  zset  see sem_acquire.lua
---@arg      max    int  min=0 max=1000  the most holders to return
---@arg      waiters  int  min=0 max=1000  the most entries of the queue to return
---@reply    (limit int, used int, fence int, waiting int, members string[], remaining int[],
---          entries string[])  limit: 0 where none is stored; members: permits and their notes,
---          see sem_acquire.lua, by the end of their leases; remaining: of each, in ms
---@error    LAYOUT  the key holds no semaphore of this version
---@cost     O(max)

local permits, queue = KEYS[1], KEYS[2]
local max, waiters = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (max and max >= 0 and max <= 1000) then
  error('max must be 0 to 1000')
end
if not (waiters and waiters >= 0 and waiters <= 1000) then
  error('waiters must be 0 to 1000')
end

local owner = '' -- no owner asks

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
local over = redis.call('ZRANGE', permits, '(0', '(' .. now, 'BYSCORE', 'LIMIT', 0, 1000)
for _, member in ipairs(over) do
  used = used - (tonumber((string.match(member, '^[^\n]*:(%d+)$'))) or 0)
end
if redis.call('ZCOUNT', permits, now, 1e14) == 0 then
  used = 0 -- more are dead than were counted
end
local members, remaining = {}, {}
local held = redis.call('ZRANGE', permits, now, 1e14, 'BYSCORE', 'LIMIT', 0, 2 * max, 'WITHSCORES')
for i = 1, #held, 2 do
  members[#members + 1] = held[i]
  remaining[#remaining + 1] = held[i + 1] - now
end
local entries = waiters > 0 and redis.call('ZRANGE', queue, 0, waiters - 1) or {}
return {limit_was, used, state[4] or '0', redis.call('ZCARD', queue), members, remaining, entries}
