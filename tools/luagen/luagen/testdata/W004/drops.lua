--- Drops writes by SET what has a TTL, and gives it none.
---@contract all-or-nothing
---@key  tokens  string
---@arg  full    string
---@arg  ttl     s  max=1000

local tokens = KEYS[1]
local full, ttl = ARGV[1], ARGV[2]
local left = redis.call('GET', tokens)
if left then
  redis.call('SET', tokens, 'less')
else
  redis.call('SET', tokens, full, 'EX', ttl)
end
