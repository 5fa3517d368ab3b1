--- RPCCancel gives up a request: its handler is told, and its reply is refused.
---
--- A request that may still be on its way leaves a mark, so that it does not run when
--- it arrives.
---
---@contract dup-only  an error half-way leaves the request given up and its handler without the word
---@retry    safe  what is given up stays so
---@key      record  string  see rpc_call.lua
---@key      method  zset    node, scored as in rpc_call.lua
---@arg      outbox  string  prefix of the nodes' channels
---@arg      word    bytes   what the node is told
---@arg      mark    ms      how long a request that arrives later is refused; 0: there is none
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    enum(gone=0, given_up=1, done=2)  done: the reply that nobody read is taken away
---@cost     O(log n), n being the number of nodes

local record, method = KEYS[1], KEYS[2]
local outbox, word, mark, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local head = redis.call('GETRANGE', record, 0, 255)
redis.call('ZCARD', method)
local kind = string.sub(head, 1, 1)
local node
if kind == 'p' then
  local space = string.find(head, ' ', 1, true)
  node = string.sub(head, space + 1, string.find(head, '\n', space, true) - 1)
end
if mark ~= '0' then
  redis.call('SET', record, 'x', 'PX', mark)
elseif kind == 'p' or kind == 'd' then
  redis.call('UNLINK', record)
end
if not node then
  return kind == 'd' and 2 or 0
end
redis.call('ZADD', method, 'XX', 'INCR', -1, node)
local channel, message = outbox .. node, word
--< part/rpc_publish.lua
-- In a cluster, channels are of a slot.
if shard == '1' then
  redis.call('SPUBLISH', channel, message)
else
  redis.call('PUBLISH', channel, message)
end
-->
return 1
