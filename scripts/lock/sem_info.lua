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
--< part/sem_state.lua
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
