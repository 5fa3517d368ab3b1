--- There asks first, or gives a value.
---@contract all-or-nothing
---@key    n      string
---@key    h      hash
---@arg    field  string
---@reply  (count int, at int, name string?)

local n, h = KEYS[1], KEYS[2]
local field = ARGV[1]
local count = tonumber(redis.call('GET', n)) or 0
local label = redis.call('HGET', h, field) or ''
redis.call('SET', n, label .. count + 1)
local at = 0
if redis.call('HEXISTS', h, 'at') == 1 then
  at = redis.call('HGET', h, 'at') + 1
end
local name = redis.call('HGET', h, 'name')
if name then
  redis.call('HSET', h, 'name', name .. '.')
end
return {count, at, redis.call('HGET', h, 'name')}
