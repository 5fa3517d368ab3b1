redis.call('ZREMRANGEBYSCORE', to, '-inf', string.format('%.0f', time[1] - keep) .. '.' .. fraction)
redis.call('ZREMRANGEBYRANK', to, 0, -max)
