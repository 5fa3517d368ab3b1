--- Limits has two limits for one list.
---@contract all-or-nothing
---@keys  item  string  max=10
---@args  item  (n int)  max=20

for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i])
end
