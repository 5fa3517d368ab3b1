--- Drop gives an event back that could not be handled, so that the next delivery of it is handled immediately.
---
---@contract all-or-nothing  one write
---@retry    safe  what another attempt has begun stays as it is
---@key      event  string = "webhook:{$source}:$id"  see begin.lua
---@arg      token  string  that began
---@reply    bool  whether this attempt had the event
---@cost     O(1)

local event = KEYS[1]
local token = ARGV[1]
if redis.call('GET', event) ~= 'run ' .. token then
  return 0
end
redis.call('DEL', event)
return 1
