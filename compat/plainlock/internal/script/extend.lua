--- Extend gives a lock a new time to live, if the token holds it.
---
---@contract all-or-nothing  one write
---@retry    safe  the same time is set again
---@key      lock   string  the token of its holder
---@arg      token  string
---@arg      ttl    ms  min=1  from now
---@reply    bool
---@cost     O(1)

local lock = KEYS[1]
local token, ttl = ARGV[1], ARGV[2]
if not (ttl + 0 >= 1) then
  error('ttl must be 1 or more')
end

if redis.call('GET', lock) ~= token then
  return 0
end
return redis.call('PEXPIRE', lock, ttl)
