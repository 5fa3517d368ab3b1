--- RPCPart accepts one node's answer to a gathered request, once, and tells the caller.
---
---@contract dup-only  an error half-way leaves the answer stored, or expected
---@retry    safe  an answer that was accepted is a duplicate
---@key      gather  hash    see rpc_gather.lua
---@key      method  zset    node, scored as in rpc_call.lua
---@arg      node    string
---@arg      frame   bytes   the answer as callers read it
---@arg      word    bytes   what is published in its place, if anything
---@arg      outbox  string  prefix of the callers' channels
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    enum(gone=0, accepted=1, duplicate=2, stale=3)  gone: the caller has given up; stale: it is not expected
---@cost     O(log n), n being the number of nodes

local gather, method = KEYS[1], KEYS[2]
local node, frame, word, outbox, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

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
local channel, message = outbox .. found[1], word == '' and frame or word
--< part/rpc_publish.lua
-- In a cluster, channels are of a slot.
if shard == '1' then
  redis.call('SPUBLISH', channel, message)
else
  redis.call('PUBLISH', channel, message)
end
-->
return 1
