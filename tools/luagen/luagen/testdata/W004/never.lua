--- Never asks for what a new key never is.
---@contract dup-only
---@key  hits  string
---@key  more  string
---@slots any this case has keys of the caller
---@arg  ttl   s  max=1000

local hits, more = KEYS[1], KEYS[2]
local ttl = ARGV[1]
local n = redis.call('INCR', hits)
if n > 1 then
  redis.call('EXPIRE', hits, ttl)
end
if redis.call('INCRBY', more, 5) == 1 then
  redis.call('EXPIRE', more, ttl)
end
