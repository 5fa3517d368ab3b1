--- Commands does what the test wants.
---@contract dup-only
---@key lock
---@reply (a string, b float, c bool, d int, e string[], f bool, g time.ms?)

local lock = KEYS[1]
return {
  redis.call('INCR', lock),
  redis.call('STRLEN', lock),
  redis.call('SET', lock, '1', 'NX', 'PX', 5),
  redis.call('SETEX', lock, 5, '1'),
  redis.call('EXISTS', lock),
  redis.call('EXISTS', lock),
  redis.call('SET', lock, '1', 'GET'),
}
