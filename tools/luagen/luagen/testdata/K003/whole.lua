--- Whole visits fixed keys as a list.
---@contract all-or-nothing
---@key a  string
---@key b  string
---@arg n  string

local KEYS = KEYS
local n = ARGV[1]
for _, k in pairs(KEYS) do
  redis.call('SET', k, n)
end
for i = 1, #KEYS do
  redis.call('APPEND', KEYS[i], n)
end
redis.call('DEL', unpack(KEYS))
redis.call('DEL', KEYS[3])
