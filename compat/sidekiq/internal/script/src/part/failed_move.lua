-- The field does not exist. A script whose first write frees memory may go on to use
-- some: a job that failed leaves its worker also when the server is full.
redis.call('HDEL', working, '')
redis.call('ZADD', to, at, table.concat(parts, stamp))
redis.call('HDEL', working, id)
