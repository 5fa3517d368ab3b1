--- RPCJoin announces a node and its methods for the length of a lease.
---
--- A node repeats it well within the lease. Each time it also states how many calls
--- it is working on, so that a count that went wrong is right again.
---
---@contract dup-only  an error half-way leaves the node announced for some of its methods
---@retry    safe  the same values are set again
---@key      nodes    zset  node, scored by the end of its lease in ms
---@keys     methods  zset  max=500  node, scored by its calls in flight
---@arg      node   string  name of this incarnation of the node
---@arg      lease  ms  min=1  how long the node is announced
---@arg      load   int  min=0  the calls it is working on
---@reply    (now time.ms, deadline time.ms)
---@cost     O(log n) for each method, n being the number of nodes

local nodes = KEYS[1]
local node, lease, load = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))
local deadline = now + lease

-- A key of the wrong type stops the script here, while nothing is written.
for i = 2, #KEYS do
  redis.call('ZCARD', KEYS[i])
end

-- Nothing outlives the nodes that keep it alive.
local keep = string.format('%.0f', 2 * lease)
redis.call('ZADD', nodes, string.format('%.0f', deadline), node)
redis.call('PEXPIRE', nodes, keep)
for i = 2, #KEYS do
  redis.call('ZADD', KEYS[i], load, node)
  redis.call('PEXPIRE', KEYS[i], keep)
end
return {now, deadline}
