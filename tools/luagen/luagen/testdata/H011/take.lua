--- Take does what its comments say.
---@contract dup-only  check: what does an error half-way leave behind?
---@retry never  check: may it run twice?
---@key stock string
---@arg n int  check: or float?
---@reply any  check: the returns differ
---@error SOLD_OUT  check: when?

local stock, n = KEYS[1], tonumber(ARGV[1])
local left = tonumber(redis.call('GET', stock) or 0)
if left < n then
  return redis.error_reply('SOLD_OUT up')
end
return redis.call('DECRBY', stock, n)
