--- Types does what the test wants.
---@contract all-or-nothing
---@key lock list
---@key seen set
---@key best zset

local lock, seen, best = KEYS[1], KEYS[2], KEYS[3]
redis.call('HSET', lock, 'a', 1)
redis.call('ZUNIONSTORE', best, 2, best, seen)
redis.call('EXPIRE', lock, 1)
local function put(command, key)
  redis.call(command, key, 'x')
end
put('LPUSH', lock)
put('SADD', seen)
put('SADD', best)
