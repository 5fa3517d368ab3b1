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
