-- Bare has a header that is none.
return redis.call('GET', KEYS[1])
