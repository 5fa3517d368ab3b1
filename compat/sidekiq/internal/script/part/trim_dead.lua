-- Sidekiq removes all that are too old or too many at once. Here a call removes a thousand at most: after a bound was
-- lowered, the next calls remove the rest.
local old = redis.call('ZCOUNT', to, '-inf', string.format('%.0f', time[1] - keep) .. '.' .. fraction)
local many = redis.call('ZCARD', to) + 1 - max
if old > 0 or many > 0 then
  redis.call('ZREMRANGEBYRANK', to, 0, math.min(math.max(old, many), 1000) - 1)
end
