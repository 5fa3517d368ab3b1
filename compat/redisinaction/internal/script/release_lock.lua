--- ReleaseLock deletes a lock, if the identifier holds it.
---
---@contract all-or-nothing  one write
---@retry    safe  a lock that has expired, or is another's, stays as it is
---@key      lock        string  the identifier of its holder
---@arg      identifier  string
---@reply    bool
---@cost     O(1)

local lock = KEYS[1]
local identifier = ARGV[1]

if redis.call('GET', lock) ~= identifier then
  return 0
end
return redis.call('DEL', lock)
