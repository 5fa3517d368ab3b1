--- Drop gives an event back that could not be handled, so that the next delivery of it is handled immediately.
---
--- A copy of Begin that is late finds the mark of its attempt, and begins nothing, also where none has begun before.
--- The mark ends after an hour: no copy of a call is on its way for longer.
---
---@contract dup-only  an error half-way leaves the mark, and the event until its lease is over
---@retry    safe  what another attempt has begun stays as it is
---@key      event    string = "webhook:{$source}:$id"  see begin.lua
---@key      dropped  string = "webhook-dropped:{$source}:$token"  see begin.lua
---@arg      token  string  that began
---@reply    bool  whether this attempt had the event
---@cost     O(1)

local event, dropped = KEYS[1], KEYS[2]
local token = ARGV[1]
local had = redis.call('GET', event) == 'run ' .. token
redis.call('SET', dropped, '', 'PX', 3600000)
if not had then
  return 0
end
redis.call('DEL', event)
return 1
