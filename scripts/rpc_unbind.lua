--- RPCUnbind frees a connection, if the node owns it.
---
---@contract all-or-nothing
---@retry    safe  a free connection stays free
---@key      binding  string  the node that owns the connection
---@arg      node     string
---@reply    bool  whether the node owned it
---@cost     O(1)

local binding = KEYS[1]
local node = ARGV[1]

if redis.call('GET', binding) ~= node then
  return 0
end
return redis.call('DEL', binding)
