--- RPCCollect reads the replies to requests that still wait for one.
---
--- A caller runs it after each confirmed subscription: what was announced while
--- nobody listened is in the records.
---
---@readonly
---@retry  safe  it only reads
---@keys   records  hash  max=500  see rpc_call.lua
---@reply  (state enum(gone=0, pending=1, done=2), frame bytes)[]  one row for each record, in order
---@cost   O(1) for each record

local replies, n = {}, 0
for i = 1, #KEYS do
  local found = redis.call('HMGET', KEYS[i], 's', 'f')
  local state = 0
  if found[1] then
    state = found[2] and 2 or 1
  end
  replies[n + 1], replies[n + 2] = state, found[2] or ''
  n = n + 2
end
return replies
