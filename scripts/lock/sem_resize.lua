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
--< part/sem_state.lua
local limit = size
if redis.call('ZSCORE', permits, request) then
  return limit_was -- it is void
end

redis.call('ZREM', queue, '') -- see sem_release.lua

--< part/number.lua
--< part/sem_stay.lua
--< part/sem_hold.lua
--< part/notify.lua
--< part/sem_notify_beyond.lua
--< part/sem_due.lua
--< part/sem_grant.lua

redis.call('ZADD', permits, number(1e15 + limit), 'limit')
stay(60000)
known = true
bury()
grant()
return limit_was
