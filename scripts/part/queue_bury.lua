-- The job is dead. What it weighs is counted, so that a trim need not read the bodies.
redis.call('ZADD', dead, now_ms, id)
redis.call('HINCRBY', control, 'dead_bytes', redis.call('HSTRLEN', bodies, id))
