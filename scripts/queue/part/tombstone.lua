-- The job keeps its id until a take drops its entry: no other could take the entry for its own.
redis.call('HSET', failures, id, 'x')
redis.call('HSET', bodies, id, '')
