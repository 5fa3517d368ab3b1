if redis.call('HGET', lock, 'o') == id then
  redis.call('HDEL', lock, 'o', id)
end
