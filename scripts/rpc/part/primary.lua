-- Only the primary knows every node and subscriber. A replica that a client still takes for the
-- primary refuses a write, also one that changes nothing, and the client looks again.
redis.call('ZREM', nodes, '')
