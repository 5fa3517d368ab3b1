--- RPCPart accepts one node's answer to a gathered request, once, and notifies the caller.
---
---@contract dup-only  an error half-way leaves the answer stored or still expected
---@retry    safe  an accepted answer is a duplicate
---@key      gather  hash    see rpc_gather.lua
---@key      method  zset    node, scored as in rpc_call.lua
---@arg      node    string
---@arg      frame   bytes   the answer as callers read it
---@arg      notice  bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      outbox  string  prefix of the callers' channels
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    enum(missing=0, accepted=1, duplicate=2, stale=3)  missing: the request is cancelled or expired;
---          stale: no answer of this node is expected
---@cost     O(log n), n being the number of nodes

local gather, method = KEYS[1], KEYS[2]
local node, frame, notice, outbox, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local found = redis.call('HMGET', gather, 'c', 'n:' .. node)
if not found[1] then
  return 0
end
if not found[2] then
  return 3
end
if found[2] ~= 'p' and found[2] ~= 'u' then
  return 2
end
redis.call('ZADD', method, 'XX', 'INCR', -1, node)
redis.call('HSET', gather, 'n:' .. node, 'd' .. frame)
local channel, message = outbox .. found[1], notice == '' and frame or notice
--< part/rpc_publish.lua
-- In a cluster, a channel belongs to a slot.
if shard == '1' then
  redis.call('SPUBLISH', channel, message)
else
  redis.call('PUBLISH', channel, message)
end
-->
return 1
