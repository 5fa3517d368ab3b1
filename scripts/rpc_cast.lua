--- RPCCast sends a request without a reply to one node or to all nodes that serve its method.
---
---@contract dup-only  an error half-way leaves some nodes without the request
---@retry    never  a node that received the request would run it again
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored as in rpc_call.lua
---@arg      frame    bytes   the request as nodes read it
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long a handler may take
---@arg      all      bool    whether all nodes get it
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    (sent int, reason enum(sent=1, no_method=3, no_lease=4, no_subscriber=5))  sent: the number of
---          nodes that were subscribed
---@cost     O(n) for n nodes, 500 at most

local nodes, method = KEYS[1], KEYS[2]
local frame, outbox, timeout, all, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if #outbox > 1000 then
  error('outbox: at most 1000 bytes')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

local numsub = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB'
redis.call('ZCARD', nodes)
local sent, reason = 0, 3
for _, node in ipairs(redis.call('ZRANGE', method, 0, 499)) do
  local lease = redis.call('ZSCORE', nodes, node)
  if not lease or tonumber(lease) <= now then
    reason = math.max(reason, 4)
  elseif redis.call('PUBSUB', numsub, outbox .. node)[2] == 0 then
    reason = 5 -- see rpc_call.lua; no record waits for a node that subscribes later
  else
    local channel, message = outbox .. node, '0 ' .. timeout .. '\n' .. frame
    --< part/rpc_publish.lua
    -- In a cluster, a channel belongs to a slot.
    if shard == '1' then
      redis.call('SPUBLISH', channel, message)
    else
      redis.call('PUBLISH', channel, message)
    end
    -->
    sent = sent + 1
    if all == '0' then
      -- The next request goes to another node; the fraction does not make this one busy.
      redis.call('ZINCRBY', method, 0.001, node)
      return {1, 1}
    end
  end
end
return {sent, sent > 0 and 1 or reason}
