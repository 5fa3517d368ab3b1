--- RPCLeave removes a node from its methods, so that no call is sent to it, and then its lease.
---
---@contract dup-only  an error half-way leaves the node announced until its lease ends
---@retry    safe  a removed node stays removed
---@key      nodes    zset  node, scored by the end of its lease in ms
---@key      about    hash  node to its description
---@keys     methods  zset  max=500  node, scored as in rpc_call.lua
---@arg      node     string  name of this incarnation of the node
---@arg      stay     bool  whether the lease stays, so that the node finishes its calls
---@reply    bool  whether the node was announced
---@cost     O(log n) for each method, n being the number of nodes

local nodes, about = KEYS[1], KEYS[2]
local node, stay = ARGV[1], ARGV[2]
if #KEYS > 502 then
  error('methods: at most 500')
end
if #node > 1000 then
  error('node: at most 1000 bytes')
end

-- A key of the wrong type stops the script here, while nothing is written.
local known = redis.call('ZSCORE', nodes, node)
redis.call('HLEN', about)
for i = 3, #KEYS do
  redis.call('ZCARD', KEYS[i])
end

for i = 3, #KEYS do
  redis.call('ZREM', KEYS[i], node)
end
if stay == '0' then
  redis.call('ZREM', nodes, node)
  redis.call('HDEL', about, node)
end
return known and 1 or 0
