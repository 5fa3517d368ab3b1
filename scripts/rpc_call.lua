--- RPCCall sends a request to the least busy node that serves its method, and records it.
---
--- 1. It walks the nodes of the method in order of load, and removes those without a lease.
--- 2. It marks a node without a subscriber, so that the node comes after all others until its next report.
--- 3. It records the request for the first node with a lease, a subscriber and free capacity.
--- 4. It adds the request to the load of that node and publishes it.
---
--- PUBSUB NUMSUB finds the subscriber, not the count that PUBLISH returns. A subscriber of a replica receives what is
--- published here and is not counted: it must not run a request that was sent to another node.
---
--- In a cluster the channels belong to the slot, and its owner knows every subscriber. While the slot moves, the nodes
--- are subscribed elsewhere. Then the caller has no subscription here either, and a valid lease of the node is enough:
--- it finds the request after it has subscribed again.
---
--- A node reads the attempt, the remaining time in ms and the frame: '1 5000', a line feed, the frame.
---
---@contract dup-only  a request that cannot be published leaves no record; nodes found dead or unreachable stay marked
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored by its calls in flight less its limit of concurrent calls;
---          1000000 more when it is unreachable
---@key      record   string  state (p pending, d done, l lost, x cancelled), attempt, space, node,
---          line feed; pending: callers, line feed, request; done: reply
---@keys     discard  string  max=200  records that the caller needs no more
---@arg      frame    bytes   the request as nodes read it
---@arg      notice   bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a valid lease is enough: the slot has just moved, and not every
---          node has subscribed at its new owner
---@reply    (outcome enum(sent=1, known=2, no_method=3, no_lease=4, no_subscriber=5, overloaded=6),
---          node string)  known: the call is recorded already
---@cost     O(log n + k) for k nodes tried, 64 at most

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local frame, notice, caller, outbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, keep, shard, trust = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if #KEYS > 203 then
  error('discard: at most 200')
end
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

local numsub = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB'
local reason = 3
for from = 0, 56, 8 do
  local candidates = redis.call('ZRANGE', method, from, from + 7, 'WITHSCORES')
  for i = 1, #candidates, 2 do
    local node, load = candidates[i], tonumber(candidates[i + 1])
    local lease = redis.call('ZSCORE', nodes, node)
    if not lease or tonumber(lease) <= now then
      redis.call('ZREM', method, node)
      reason = math.max(reason, 4)
    elseif load >= 0 and load < 500000 then
      reason = 6
    elseif trust == '0' and redis.call('PUBSUB', numsub, outbox .. node)[2] == 0
      and (shard == '0' or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] > 0) then
      if load < 500000 then
        redis.call('STRLEN', record) -- a record of another type fails before a node is marked
        redis.call('ZADD', method, load + 1000000, node) -- the last in order until it reports again
      end
      reason = 5
    else
      -- The record is written first: a server without memory refuses the whole call,
      -- and a reply finds the record.
      local known = redis.call('SET', record, 'p1 ' .. node .. '\n' .. caller .. '\n' .. frame, 'PX', keep, 'NX', 'GET')
      if known then
        return {2, string.match(known, '^%a%d+ ([^\n]*)') or ''}
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
      for j = 4, #KEYS do
        if type(redis.pcall('UNLINK', KEYS[j])) == 'table' then
          break -- the other records expire
        end
      end
      return {1, node}
    end
  end
  if #candidates < 16 then
    break
  end
end

--< part/rpc_known.lua
-- A repeat of a recorded call returns its node, not the reason above: the first attempt may
-- have taken the last free capacity.
local head = redis.call('GETRANGE', record, 0, 255)
if head ~= '' then
  return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
end
-->
return {reason, ''}
