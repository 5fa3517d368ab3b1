redis.pcall('INCR', processed)
redis.pcall('INCR', processed_day)
redis.pcall('EXPIRE', processed_day, '157680000') -- five years, as Sidekiq has it
redis.pcall('INCR', failed)
redis.pcall('INCR', failed_day)
redis.pcall('EXPIRE', failed_day, '157680000')
