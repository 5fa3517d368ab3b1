-- What the suspects were judged to be is removed, added or corrected.
for _, id in ipairs(ghosts) do
  redis.call('ZREM', scheduled, id)
  redis.call('ZREM', leases, id)
  redis.call('ZREM', dead, id)
end
for _, id in ipairs(counts) do
  redis.call('HDEL', failures, id, id .. '\n')
  redis.call('HDEL', options, id)
end
for _, id in ipairs(cancelled) do -- a take drops only the body and the mark
  redis.call('HDEL', failures, id .. '\n')
  redis.call('HDEL', options, id)
  names[#names + 1] = {id, redis.call('HGET', unique, 'j:' .. id) or ''}
end
for _, hold in ipairs(names) do
  if redis.call('HGET', unique, 'k:' .. hold[2]) == hold[1] then
    redis.call('ZREM', expiry, hold[2])
    redis.call('HDEL', unique, 'k:' .. hold[2])
  end
  if redis.call('HGET', unique, 'j:' .. hold[1]) == hold[2] then
    redis.call('HDEL', unique, 'j:' .. hold[1])
  end
end
if #halves > 0 then
  redis.call('HSET', unique, unpack(halves, 1, #halves))
end
for _, hold in ipairs(ends) do
  if hold[2] then
    redis.call('ZADD', expiry, '9007199254740991', hold[1])
  else
    redis.call('ZREM', expiry, hold[1])
  end
end
for _, mark in ipairs(marks) do
  if mark[2] == '0' then
    redis.call('HDEL', failures, mark[1])
  else
    redis.call('HSET', failures, mark[1], mark[2])
  end
end
if corrected and to == 0 then
  redis.call('HDEL', control, 'dead_bytes')
elseif corrected then
  redis.call('HSET', control, 'dead_bytes', string.format('%.0f', to))
end
