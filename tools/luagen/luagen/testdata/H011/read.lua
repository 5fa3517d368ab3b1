--- Read does what its comments say and nothing else: this one is no draft.
---@readonly
---@key stock string  check: a key
---@reply int

local stock = KEYS[1]
return redis.call('EXISTS', stock)
