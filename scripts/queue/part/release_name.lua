-- The job gives up its unique name, unless a later job has taken the name over.
local name = redis.call('HGET', unique, 'j:' .. id)
if name then
  if redis.call('HGET', unique, 'k:' .. name) == id then
    redis.call('ZREM', expiry, name)
    redis.call('HDEL', unique, 'k:' .. name)
  end
  redis.call('HDEL', unique, 'j:' .. id)
end
