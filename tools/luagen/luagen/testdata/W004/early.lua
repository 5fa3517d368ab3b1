--- Early returns between the write and its TTL.
---@contract dup-only
---@key    seen   set = "seen:{$user}"
---@key    quota  hash = "quota:{$user}"
---@arg    ttl    s  max=1000
---@arg    id     string
---@reply  int

local seen, quota = KEYS[1], KEYS[2]
local ttl, id = ARGV[1], ARGV[2]
redis.call('SADD', seen, id)
local left = redis.call('HGET', quota, 'left')
if not left or tonumber(left) < 1 then
  return 0
end
redis.call('EXPIRE', seen, ttl)
return 1
