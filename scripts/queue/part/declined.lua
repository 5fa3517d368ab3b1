-- A job that was declined waits as long as it has been declined, a minute at most. After its patience it is dead.
if patience > 0 and not over then
  since = math.min(since or now_ms, now_ms)
  local age = now_ms - since
  delay = age < patience and math.max(math.min(math.max(delay, math.min(age, 60000)), patience - age), 1) or -1
  verdicts[n] = delay < 0 and 3 or 1
  redis.call('HSET', failures, id .. '\n', string.format('declined since %.0f: ', since) .. reason)
elseif since and counted ~= '1' then
  redis.call('HDEL', failures, id .. '\n') -- a worker has begun it
end
