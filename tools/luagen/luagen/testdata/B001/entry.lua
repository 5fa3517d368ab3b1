--- Entry adds one entry: its fields cannot be added in parts.
---@contract dup-only
---@key   log   stream
---@key   names set
---@reply string
---@error TOO_MANY  there are more than 1000 fields
---@allow B002 the names are few

local log, names = KEYS[1], KEYS[2]
local fields, few = redis.call('SMEMBERS', names), redis.call('SMEMBERS', names)
if #few > 1000 then
  return redis.error_reply('TOO_MANY values')
end
redis.call('XADD', log, '*', unpack(few))
return redis.call('XADD', log, '*', unpack(fields))
