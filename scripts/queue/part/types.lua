-- A key of the wrong type stops the script here, while nothing is written, and so does a later
-- layout: it has a text in paused, and in limit, that no script of this one writes.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)
local paused = redis.call('HGET', control, 'paused')
if paused and paused ~= '1' then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
