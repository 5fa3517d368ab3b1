--- RPCGather sends a request to all nodes that serve its method, and records which answers are expected.
---
--- The expected nodes are those with a lease in the step that publishes. A node without a subscriber is returned as
--- such. It runs the request only if the caller sends its notice to the node, as it does while the slot of a cluster
--- moves.
---
--- Long because one call finds the nodes, records the request and publishes it, and returns the nodes of a repeat.
---
---@contract dup-only  an error half-way leaves a request that some nodes run and no caller waits for; it expires
---@retry    safe  a recorded request is not sent again, and the same nodes are returned
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored as in rpc_call.lua
---@key      gather   hash    c caller, f request, n:node p while its answer is expected, u the same
---          without a subscriber, d and the answer afterwards
---@arg      frame    bytes   the request as nodes read it
---@arg      notice   bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    (node string, subscribed bool)[]  the nodes with a lease
---@cost     O(n) for n nodes, 500 at most

local nodes, method, gather = KEYS[1], KEYS[2], KEYS[3]
local frame, notice, caller, outbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, keep, shard = ARGV[5], ARGV[6], ARGV[7]
if #outbox + #caller > 1000 then
  error('outbox and caller: at most 1000 bytes')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

local trust = '0' -- the subscription of each node is checked
--< part/rpc_reachable.lua
-- reachable reports whether a node receives a request; see rpc_call.lua. While the slot
-- moves the caller has no subscription here either, and the lease of the node is enough.
local function reachable(node)
  if trust == '1' then
    return true
  elseif shard == '0' then
    return redis.call('PUBSUB', 'NUMSUB', outbox .. node)[2] > 0
  end
  return redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. node)[2] > 0
    or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] == 0
end
-->

local rows, n = {}, 0
redis.call('ZCARD', nodes)
local known = redis.call('HEXISTS', gather, 'c') == 1
local candidates = redis.call('ZRANGE', method, 0, 499)
if known then
  for _, node in ipairs(candidates) do
    local state = redis.call('HGET', gather, 'n:' .. node)
    if state then
      rows[n + 1], rows[n + 2] = node, state == 'u' and 0 or 1
      n = n + 2
    end
  end
  return rows
end

local fields, receivers, f = {'c', caller, 'f', frame}, {}, 4
for _, node in ipairs(candidates) do
  local lease = redis.call('ZSCORE', nodes, node)
  if lease and tonumber(lease) > now then
    local subscribed = reachable(node)
    if subscribed then
      receivers[#receivers + 1] = node
    end
    fields[f + 1], fields[f + 2] = 'n:' .. node, subscribed and 'p' or 'u'
    f = f + 2
    rows[n + 1], rows[n + 2] = node, subscribed and 1 or 0
    n = n + 2
  end
end
if n == 0 then
  return rows
end
for i = 1, f, 500 do
  redis.call('HSET', gather, unpack(fields, i, math.min(i + 499, f)))
  if i == 1 then
    redis.call('PEXPIRE', gather, keep)
  end
end
local message = notice == '' and '1 ' .. timeout .. '\n' .. frame or notice
for _, node in ipairs(receivers) do
  redis.call('ZINCRBY', method, 1, node)
  local channel = outbox .. node
  --< part/rpc_publish.lua
  -- In a cluster, a channel belongs to a slot.
  if shard == '1' then
    redis.call('SPUBLISH', channel, message)
  else
    redis.call('PUBLISH', channel, message)
  end
  -->
end
return rows
