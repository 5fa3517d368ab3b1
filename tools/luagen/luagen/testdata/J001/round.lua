--- Round sends a stored value through cjson and back.
---@contract all-or-nothing
---@uses cjson  the value is JSON
---@key job  string

local job = KEYS[1]
local value = cjson.decode(redis.call('GET', job) or '{}')
value.tries = 1
redis.call('SET', job, cjson.encode(value))
redis.call('SET', job, cjson.encode({tries = 1}))
