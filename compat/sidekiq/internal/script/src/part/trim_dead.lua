-- Sidekiq removes all that are too old or too many at once. Here a call removes a thousand at most: after a bound was
-- lowered, the next calls remove the rest. The script tries to remove an empty range before it adds a job.
local old = redis.call('ZCOUNT', to, '-inf', string.format('%.0f', time[1] - keep) .. '.' .. fraction)
local many = redis.call('ZCARD', to) + 2 - max -- with the job that comes
spare = math.min(math.max(old, many), 1000)
if spare > 0 then
  redis.call('ZREMRANGEBYRANK', to, 1, 0)
end
