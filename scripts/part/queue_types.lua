-- A key of the wrong type stops the script here, while nothing is written.
redis.call('HLEN', bodies)
redis.call('HLEN', failures)
redis.call('ZCARD', dead)
redis.call('HLEN', unique)
redis.call('ZCARD', expiry)
redis.call('HLEN', control)
