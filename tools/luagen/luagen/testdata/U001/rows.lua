--- Rows takes the length of time of each row for another.
---@contract all-or-nothing
---@keys  a    string  max=10
---@args  row  (body string, ttl ms)  max=10

for i = 1, #ARGV, 2 do
  local body, ttl = ARGV[i], ARGV[i + 1]
  redis.call('SET', KEYS[(i + 1) / 2], body, 'EX', ttl)
  redis.call('SET', KEYS[(i + 1) / 2], body, 'PX', ttl)
end
