--- Read does what its comments say, for those who check: it is read once.
---@readonly
---@key stock string  check: a key
---@reply int

local stock = KEYS[1]
return redis.call('EXISTS', stock)
