--- Release deletes a lock, if the token holds it, and notifies the Go processes that wait for it.
---
---@contract all-or-nothing  one write
---@retry    safe  a lock that has expired, or is another's, stays as it is
---@key      lock     string  the token of its holder
---@arg      token    string
---@arg      channel  string  to which its Go waiters are subscribed
---@reply    bool
---@cost     O(1)
---@allow    W002 a waiter that is not notified polls

local lock = KEYS[1]
local token, channel = ARGV[1], ARGV[2]

if redis.call('GET', lock) ~= token then
  return 0
end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '')
return 1
