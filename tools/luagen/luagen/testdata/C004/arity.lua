--- Arity does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
redis.call('GET')
redis.call('HSET', lock, 'a')
redis.call()
local t = {'a', 'b'}
redis.call('HSET', lock, unpack(t), 'c')
redis.call('GET', lock, lock, unpack(t))
return redis.call('GET', lock, lock)
