--- Noscript does what the test wants.
---@contract all-or-nothing

redis.call('MULTI')
redis.call('SUBSCRIBE', 'x')
