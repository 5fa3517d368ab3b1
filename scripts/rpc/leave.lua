--- Leave withdraws a node from all of its methods or from those that are given, and ends its
--- lease.
---
---@contract dup-only  an error half-way leaves the node announced until its lease ends
---@retry    safe  a removed node stays removed
---@key      nodes    zset  node, scored by the end of its lease in ms; the fraction is its load
---@key      about    hash  node to its description
---@key      methods  zset  method, NUL, node; all scores are 0
---@key      serves   hash  node, NUL, part: methods, a line each
---@arg      node     string  name of this incarnation of the node
---@arg      stay     bool  whether the lease stays, so that the node finishes its calls
---@args     name     string  max=500  the node is withdrawn from these alone; from all where there are none
---@reply    bool  whether the node was announced
---@cost     O(log n) for each method, n being the number of nodes

local nodes, about, methods, serves = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, stay = ARGV[1], ARGV[2]
if #ARGV > 502 then
  error('name: at most 500')
end
if #node > 1000 then
  error('node: at most 1000 bytes')
end

-- A key of the wrong type stops the script here, while nothing is written.
local known = redis.call('ZSCORE', nodes, node)
redis.call('HLEN', about)
redis.call('ZCARD', methods)
redis.call('HLEN', serves)

for i = 3, #ARGV do
  redis.call('ZREM', methods, ARGV[i] .. '\0' .. node)
end
if #ARGV == 2 then
  local dead = node
  --< part/forget.lua
end
if stay == '0' then
  redis.call('ZREM', nodes, node)
  redis.call('HDEL', about, node)
elseif known and #ARGV == 2 then
  -- No request is given to it from now on, while its lease is good: see call.lua.
  redis.call('ZADD', nodes, string.format('%.0f', math.floor(known)) .. '.999', node)
end
return known and 1 or 0
