--- First does what the test wants.
---@contract all-or-nothing
---@retry safe  the same value
---@merge max=64
---@key item string
---@key log  set
---@arg value string

local item, log, value = KEYS[1], KEYS[2], ARGV[1]
if #KEYS > 128 then
  error('at most 64 rows')
end
redis.call('SCARD', log)
redis.call('SET', item, value)
redis.call('SADD', log, value)
