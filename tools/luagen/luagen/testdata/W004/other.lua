--- Other gives the TTL where other data say so, the fault.
---@contract dup-only
---@key  hits  string = "hits:{$user}"
---@key  plan  string = "plan:{$user}"
---@arg  ttl   s  max=1000

local hits, plan = KEYS[1], KEYS[2]
local ttl = ARGV[1]
redis.call('INCR', hits)
if redis.call('GET', plan) == 'free' then
  redis.call('EXPIRE', hits, ttl)
end
