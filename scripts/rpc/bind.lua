--- Bind makes a node the owner of a connection, if the current owner is the expected one, or frees the connection.
---
---@contract all-or-nothing
---@retry    safe  the owner binds it again; a free connection stays free
---@key      binding  string  the node that owns the connection
---@key      nodes    zset    node, scored by the end of its lease in ms; the fraction is its load
---@arg      node     string
---@arg      from     string?  the owner that loses the connection; none: the connection must be free or
---          its owner dead
---@arg      keep     ms  min=0  how long the binding stays; 0: the connection is freed, if the node owns it
---@reply    (bound bool, owner string)  owner: of the connection now; bound, where it is freed: whether the node
---          owned it
---@cost     O(1)

local binding, nodes = KEYS[1], KEYS[2]
local node, from, keep = ARGV[1], ARGV[2], ARGV[3]

--< part/now_ms.lua
local now = tonumber(now_ms)

local owner = redis.call('GET', binding)
local lease = owner and redis.call('ZSCORE', nodes, owner) or not owner and redis.call('ZCARD', nodes)
if keep == '0' then
  if owner ~= node then
    return {0, owner or ''}
  end
  redis.call('DEL', binding)
  return {1, ''}
end
if owner and owner ~= node then
  local free = not lease or tonumber(lease) <= now
  if not (from == owner or from == '' and free) then
    return {0, owner}
  end
elseif not owner and from ~= '' then
  return {0, ''}
end
redis.call('SET', binding, node, 'PX', keep)
return {1, node}
