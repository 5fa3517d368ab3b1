--- Checked reads each key before it writes any, so that a key of another type stops it in time.
---@contract all-or-nothing
---@key   name   string
---@key   stats  hash
---@keys  log    list  max=100
---@arg   value  string

local name, stats = KEYS[1], KEYS[2]
local value = ARGV[1]
redis.call('HLEN', stats)
for i = 3, #KEYS do
  redis.call('LLEN', KEYS[i])
end
redis.call('SET', name, value)
redis.call('HINCRBY', stats, 'sets', 1)
redis.call('EXPIRE', stats, 60)
