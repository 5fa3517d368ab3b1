--- Plain ties values that have no names, and two limits.
---@contract all-or-nothing
---@keys  item  string  max=10
---@args  item  int     max=20

for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i])
end
