--- RPCLeave withdraws a node: no call is sent to it any more.
---
---@contract dup-only  an error half-way leaves the node announced until its lease ends
---@retry    safe  removing twice is removing once
---@key      nodes    zset  node, scored by the end of its lease in ms
---@keys     methods  zset  max=500  node, scored by its calls in flight
---@arg      node   string  name of this incarnation of the node
---@reply    bool  whether the node was announced
---@cost     O(log n) for each method, n being the number of nodes

local nodes = KEYS[1]
local node = ARGV[1]

-- A key of the wrong type stops the script here, while nothing is written.
for i = 2, #KEYS do
  redis.call('ZCARD', KEYS[i])
end

local known = redis.call('ZREM', nodes, node)
for i = 2, #KEYS do
  redis.call('ZREM', KEYS[i], node)
end
return known
