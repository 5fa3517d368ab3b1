--- RPCAttach adds a caller to a call that is recorded, or reads the reply of that call.
---
--- An added caller is notified of the reply like the first one. At most 16 callers are notified; later ones poll.
--- The record of a lost call is deleted, so that the call can be made again.
---
---@contract all-or-nothing
---@retry    safe  a caller that is recorded is not added again
---@key      record   string  see rpc_call.lua
---@arg      caller   string  name of the caller
---@reply    (state enum(missing=0, pending=1, done=2, lost=3, full=4), node string, frame bytes)
---          missing: no record, or cancelled; done: the frame is the reply; full: 16 callers are recorded
---@cost     O(1)

local record = KEYS[1]
local caller = ARGV[1]

local value = redis.call('GET', record)
if not value or string.sub(value, 1, 1) == 'x' then
  return {0, '', ''}
end
local space = string.find(value, ' ', 1, true)
local stop = string.find(value, '\n', space, true)
local node, kind = string.sub(value, space + 1, stop - 1), string.sub(value, 1, 1)
if kind == 'd' then
  return {2, node, string.sub(value, stop + 1)}
end
if kind == 'l' then
  redis.call('UNLINK', record)
  return {3, node, ''}
end
local last = string.find(value, '\n', stop + 1, true)
local n = 1
for known in string.gmatch(string.sub(value, stop + 1, last - 1), '[^\t]+') do
  if known == caller then
    return {1, node, ''}
  end
  n = n + 1
  if n > 16 then
    return {4, node, ''}
  end
end
redis.call('SET', record, string.sub(value, 1, last - 1) .. '\t' .. caller .. string.sub(value, last), 'KEEPTTL')
return {1, node, ''}
