--- DropAll deletes keys.
---
---@contract all-or-nothing
---@retry    safe
---@guard guard.lua
---@keys     keys
---@args     why  string  max=10  bytes=100

for i = 1, #ARGV do
  local why = ARGV[i]
  redis.call('ECHO', why)
end
for i = 1, #KEYS, 1000 do
  redis.call('DEL', unpack(KEYS, i, math.min(i + 999, #KEYS)))
end
