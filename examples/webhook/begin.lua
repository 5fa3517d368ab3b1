--- Begin asks for the right to handle an event, or returns the answer that was given to it.
---
--- A handler that dies leaves the event to the next sender when its lease is over.
---
---@contract all-or-nothing  one write
---@retry    safe  the same token has the event already, or has dropped it
---@key      event    string = "webhook:{$source}:$id"  run and a token, or done and the answer, a space
---          between; expires
---@key      dropped  string = "webhook-dropped:{$source}:$token"  of an attempt that was dropped; expires
---@arg      token  string  of this attempt: each has one of its own
---@arg      lease  ms  min=1 max=3600000  in which it answers
---@reply    (state enum(run=0, busy=1, done=2), answer bytes)  run: handle it; busy: another does; done: send it
---@cost     O(1)

local event, dropped = KEYS[1], KEYS[2]
local token, lease = ARGV[1], ARGV[2]
local state = redis.call('GET', event)
if state and string.sub(state, 1, 5) == 'done ' then
  return {2, string.sub(state, 6)}
end
if state and state ~= 'run ' .. token or redis.call('EXISTS', dropped) == 1 then
  return {1, ''}
end
redis.call('SET', event, 'run ' .. token, 'PX', lease)
return {0, ''}
