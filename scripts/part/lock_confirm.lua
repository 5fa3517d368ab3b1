-- The holder was handed the lock and speaks for the first time: it is confirmed.
redis.call('SET', lock, lock_record(fence_was, 1, void, tail), 'KEEPTTL')
