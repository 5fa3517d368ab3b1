--- Finish keeps the answer to an event, so that the next delivery of it gets the same.
---
---@contract all-or-nothing  one write
---@retry    safe  the answer is there already
---@key      event   string = "webhook:{$source}:$id"  see begin.lua
---@arg      token   string  that began
---@arg      keep    ms  min=1 max=2592000000  how long the sender may repeat the event
---@arg      answer  bytes
---@reply    bool  whether this answer counts: false where the lease was over and another attempt has the event
---@cost     O(1)

local event = KEYS[1]
local token, keep, answer = ARGV[1], ARGV[2], ARGV[3]
local state = redis.call('GET', event)
if state == 'done ' .. answer then
  return 1
end
if state ~= 'run ' .. token then
  return 0
end
redis.call('SET', event, 'done ' .. answer, 'PX', keep)
return 1
