--- Unknown does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
redis.call('EXPIRES', lock, 1)
redis.call('OBJECT', 'SIZE', lock)
redis.call('HEXPIRE', lock, 1, 'FIELDS', 1, 'f')
return redis.call('json.get', lock)
