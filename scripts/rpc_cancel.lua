--- RPCCancel cancels a request: its node is notified, and its reply is refused.
---
--- A request that may arrive later leaves a mark, so that it does not run then.
---
---@contract dup-only  an error half-way leaves the request cancelled and its node not notified
---@retry    safe  a cancelled request stays cancelled
---@key      record  string  see rpc_call.lua
---@key      method  zset    node, scored as in rpc_call.lua
---@arg      outbox  string  prefix of the nodes' channels
---@arg      notice  bytes   what is published to the node
---@arg      mark    ms      how long a request that arrives later is refused; 0: no request can arrive later
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    enum(missing=0, cancelled=1, done=2)  missing: no record, or cancelled before;
---          done: the unread reply is deleted
---@cost     O(log n), n being the number of nodes

local record, method = KEYS[1], KEYS[2]
local outbox, notice, mark, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

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
local channel, message = outbox .. node, notice
--< part/rpc_publish.lua
-- In a cluster, a channel belongs to a slot.
if shard == '1' then
  redis.call('SPUBLISH', channel, message)
else
  redis.call('PUBLISH', channel, message)
end
-->
return 1
