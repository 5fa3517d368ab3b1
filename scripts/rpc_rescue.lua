--- RPCRescue decides about a request whose node is dead: another node gets the request, or it is lost.
---
--- The script compares the node's lease with the server's clock. A node with a valid lease keeps its request. A
--- late reply of a dead node is refused. Only a request that may run twice goes to another node.
---
---@contract dup-only  an error half-way leaves the request with one node or lost; a repeat continues
---@retry    safe  a repeat returns what was decided
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored as in rpc_call.lua
---@key      record   string  see rpc_call.lua
---@arg      again    bool    whether another node may run it
---@arg      outbox   string  prefix of the nodes' channels
---@arg      notice   bytes   what is published to the other node, which then fetches the request
---@arg      grace    ms      how much longer than the request its record lives
---@arg      keep     ms  min=1  how long the record of a lost request stays
---@arg      caller   string  name of the caller
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a valid lease is enough: the slot has just moved, and not every
---          node has subscribed at its new owner
---@reply    (outcome enum(missing=0, alive=1, done=2, lost=3, moved=4), node string, frame bytes)
---          missing: no record, or cancelled; done: the frame is the reply
---@cost     O(log n + k) for k nodes tried, 64 at most

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local again, outbox, notice, grace, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local caller, shard, trust = ARGV[6], ARGV[7], ARGV[8]
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

local function alive(node)
  local lease = redis.call('ZSCORE', nodes, node)
  return lease and tonumber(lease) > now
end

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

redis.call('ZCARD', nodes)
local candidates = redis.call('ZRANGE', method, 0, 63)
local value = redis.call('GET', record)
if not value or string.sub(value, 1, 1) == 'x' then
  return {0, '', ''}
end
local space = string.find(value, ' ', 1, true)
local stop = string.find(value, '\n', space, true)
local kind, attempt = string.sub(value, 1, 1), tonumber(string.sub(value, 2, space - 1))
local node = string.sub(value, space + 1, stop - 1)
if kind == 'd' then
  return {2, node, string.sub(value, stop + 1)}
end
if kind == 'l' then
  return {3, node, ''}
end
if alive(node) then
  return {1, node, ''}
end

local left = redis.call('PTTL', record) - grace
if again == '1' and left > 0 then
  attempt = attempt + 1
  for _, other in ipairs(candidates) do
    if other ~= node and alive(other) and reachable(other) then
      redis.call('SET', record, 'p' .. attempt .. ' ' .. other .. string.sub(value, stop), 'KEEPTTL')
      redis.call('ZINCRBY', method, 1, other)
      local channel, message = outbox .. other, notice
      --< part/rpc_publish.lua
      -- In a cluster, a channel belongs to a slot.
      if shard == '1' then
        redis.call('SPUBLISH', channel, message)
      else
        redis.call('PUBLISH', channel, message)
      end
      -->
      redis.call('ZREM', method, node)
      return {4, other, ''}
    end
  end
end
redis.call('SET', record, 'l' .. string.sub(value, 2, stop), 'PX', keep)
redis.call('ZREM', method, node)
return {3, node, ''}
