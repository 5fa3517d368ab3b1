--- RPCReply accepts the reply to a request, once, and tells the caller.
---
--- It is accepted while the request is pending and comes from the node and the
--- attempt that were asked; all others are refused, and the outcome says why. The
--- reply is stored and announced in one step: a caller that was cut off collects it.
---
---@contract dup-only  an error half-way leaves the reply stored, or the request pending
---@retry    safe  a reply that was accepted is a duplicate
---@key      record  hash  see rpc_call.lua
---@key      method  zset  node, scored by its calls in flight
---@arg      node     string
---@arg      attempt  int  min=1
---@arg      frame    bytes  the reply as callers read it
---@arg      keep     ms  min=1  how long the caller can collect it
---@reply    enum(gone=0, accepted=1, duplicate=2, stale=3)  gone: the caller has given up; stale: another node or attempt is asked
---@cost     O(log n), n being the number of nodes

local record, method = KEYS[1], KEYS[2]
local node, attempt, frame, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local asked = redis.call('HMGET', record, 's', 'n', 'a', 'c')
if not asked[1] then
  return 0
end
if asked[2] ~= node or asked[3] ~= attempt then
  return 3
end
if asked[1] ~= 'p' then
  return 2
end

local busy = redis.call('ZSCORE', method, node)
redis.call('HSET', record, 's', 'd', 'f', frame)
redis.call('PEXPIRE', record, keep)
if busy and tonumber(busy) > 0 then
  redis.call('ZINCRBY', method, -1, node)
end
redis.call('PUBLISH', asked[4], frame)
return 1
