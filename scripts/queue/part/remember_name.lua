-- A dead job gives up its unique name, unless a later job has taken it over, and remembers it: a
-- requeue takes it again.
local name = redis.call('HGET', unique, 'j:' .. id)
if name and redis.call('HGET', unique, 'k:' .. name) == id then
  redis.call('ZREM', expiry, name)
  redis.call('HDEL', unique, 'k:' .. name)
end
