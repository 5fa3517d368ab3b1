-- A mark stays for a minute: a push that is sent again finds it, and does not add its job a second
-- time. Older ones go, a bounded number at a time.
local old = redis.call('ZCOUNT', finished, '-inf', now_ms - 61000)
if old > 0 then
  redis.call('ZREMRANGEBYRANK', finished, 0, math.min(old, 2 * g + 100) - 1)
end
redis.call('EXPIRE', finished, 62)
