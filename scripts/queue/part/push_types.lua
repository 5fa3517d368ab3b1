redis.call('HLEN', bodies)
redis.call('ZCARD', expiry)
redis.call('HLEN', KEYS[i + 9])
local limit = tonumber(redis.call('HGET', control, 'limit') or 0)
if not limit then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
