--- RPCDirect sends a request to one node: a named one, or the owner of a connection.
---
--- It works like rpc_call.lua, without a choice of nodes.
---
---@contract dup-only  a request that cannot be published leaves no record
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored as in rpc_call.lua
---@key      record   string  see rpc_call.lua
---@keys     binding  string  max=1  the node that owns the connection; none when the node is named
---@arg      frame    bytes   the request as nodes read it
---@arg      notice   bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a valid lease is enough: the slot has just moved, and not every
---          node has subscribed at its new owner
---@arg      target   string?  the named node; none for the owner of the connection
---@reply    (outcome enum(sent=1, known=2, no_method=3, no_lease=4, no_subscriber=5, overloaded=6,
---          no_connection=7), node string)
---@cost     O(log n)

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local frame, notice, caller, outbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, keep, shard, trust, target = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
if #KEYS > 4 then
  error('binding: at most 1')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

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

local node, reason = target, 1
for i = 4, #KEYS do
  node = redis.call('GET', KEYS[i]) or ''
end
local lease = redis.call('ZSCORE', nodes, node)
local load = tonumber(redis.call('ZSCORE', method, node) or '')
if node == '' then
  reason = 7
elseif not lease or tonumber(lease) <= now then
  reason = 4
elseif not load then
  reason = 3
elseif load >= 0 and load < 500000 then
  reason = 6
elseif not reachable(node) then
  reason = 5
end
if reason > 1 then
  --< part/rpc_known.lua
  -- A repeat of a recorded call returns its node, not the reason above: the first attempt may
  -- have taken the last free capacity.
  local head = redis.call('GETRANGE', record, 0, 255)
  if head ~= '' then
    return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
  end
  -->
  return {reason, node}
end
local value = 'p1 ' .. node .. '\n' .. caller .. '\n' .. frame
if redis.call('SET', record, value, 'PX', keep, 'NX', 'GET') then
  return {2, node}
end
--< part/rpc_send.lua
-- The load of the node counts the request before it is published. A request that cannot
-- be published leaves no record.
local added = redis.pcall('ZINCRBY', method, 1, node)
local sent = added
if type(added) ~= 'table' then
  local message = notice == '' and '1 ' .. timeout .. '\n' .. frame or notice
  if shard == '1' then
    sent = redis.pcall('SPUBLISH', outbox .. node, message)
  else
    sent = redis.pcall('PUBLISH', outbox .. node, message)
  end
end
if type(sent) == 'table' then
  redis.call('DEL', record)
  if type(added) ~= 'table' then
    redis.call('ZINCRBY', method, -1, node)
  end
  error(sent)
end
-->
return {1, node}
