--- RPCJoin announces a node and its methods for the length of a lease.
---
--- 1. It writes the lease and the load of the node anew, which corrects a wrong count of its calls.
--- 2. It removes nodes whose leases are over.
--- 3. It publishes a notice on the node's own channel. A count of 0 receivers means that the subscription is lost.
---
--- A node repeats it well within the lease.
---
---@contract dup-only  an error half-way leaves the node announced for some of its methods
---@retry    safe  the same values are set again
---@key      nodes    zset  node, scored by the end of its lease in ms
---@key      about    hash  node to its description
---@keys     methods  zset  max=500  node, scored as in rpc_call.lua
---@arg      node     string  name of this incarnation of the node
---@arg      lease    ms  min=1  how long the node is announced
---@arg      stay     ms  min=1  how long the keys stay without a node, more than the lease
---@arg      load     int  its calls in flight less its limit of concurrent calls
---@arg      text     string  its description
---@arg      outbox   string  prefix of the nodes' channels
---@arg      notice   bytes  what is published on its own channel
---@arg      shard    bool   sharded pub/sub, in a cluster
---@reply    (now time.ms, deadline time.ms, receivers int)  receivers: of the notice
---@cost     O(log n) for each method, n being the number of nodes

local nodes, about = KEYS[1], KEYS[2]
local node, lease, stay, load = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local text, outbox, notice, shard = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if #KEYS > 502 then
  error('methods: at most 500')
end
if #node > 1000 then
  error('node: at most 1000 bytes')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)
local deadline = now + lease

-- A key of the wrong type stops the script here, while nothing is written.
local over = redis.call('ZRANGE', nodes, '-inf', '(' .. string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 100)
redis.call('HLEN', about)
for i = 3, #KEYS do
  redis.call('ZCARD', KEYS[i])
end

-- Each key expires when no node renews it.
redis.call('ZADD', nodes, string.format('%.0f', deadline), node)
redis.call('PEXPIRE', nodes, stay)
redis.call('HSET', about, node, text)
redis.call('PEXPIRE', about, stay)
for i = 3, #KEYS do
  redis.call('ZADD', KEYS[i], load, node)
  redis.call('PEXPIRE', KEYS[i], stay)
end
for _, dead in ipairs(over) do
  if dead ~= node then
    redis.call('ZREM', nodes, dead)
    redis.call('HDEL', about, dead)
  end
end
if shard == '1' then
  return {now, deadline, redis.call('SPUBLISH', outbox .. node, notice)}
end
return {now, deadline, redis.call('PUBLISH', outbox .. node, notice)}
