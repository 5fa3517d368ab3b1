-- The waiter leaves its name in the same step as the check that found nothing: no work
-- comes in between unnoticed.
redis.call('ZADD', wake, string.format('%.0f', now_ms + wait), waiter)
-- Waiters that wait for longer keep the key for as long as they need it.
local stay = string.format('%.0f', wait + 1000)
if redis.call('PEXPIRE', wake, stay, 'GT') == 0 then
  redis.call('PEXPIRE', wake, stay, 'NX')
end
