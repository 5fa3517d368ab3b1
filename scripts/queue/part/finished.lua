-- A mark stays for a minute, and that of an id which its caller chose for longer: a push that is sent again or made
-- again finds it, and does not add its job a second time. Older ones go, a bounded number at a time.
local old = redis.call('ZCOUNT', finished, '-inf', now_ms - 61000)
if old > 0 then
  redis.call('ZREMRANGEBYRANK', finished, 0, math.min(old, 2 * g + 100) - 1)
end
local stay = kept_at and string.format('%.0f', known + 2000) or '62000'
if redis.call('PEXPIRE', finished, stay, 'GT') == 0 then
  redis.call('PEXPIRE', finished, stay, 'NX')
end
