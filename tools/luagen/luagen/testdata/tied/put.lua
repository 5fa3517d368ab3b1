--- Put stores a value under each key.
---@contract all-or-nothing
---@keys  entry  string
---@args  entry  (body bytes, ttl ms)  max=50

for i = 1, #ARGV, 2 do
  local body, ttl = ARGV[i], ARGV[i + 1]
  redis.call('SET', KEYS[(i + 1) / 2], body, 'PX', ttl)
end
