redis.call('HDEL', lock, 'o', id)
