-- The job was cancelled while it was leased: it is over. The caller ends the lease, after this.
g = g + 1
--< part/mark_time.lua
redis.call('ZADD', finished, at, id)
redis.call('HDEL', options, id)
redis.call('HDEL', bodies, id)
redis.call('HDEL', failures, id, id .. '\n')
