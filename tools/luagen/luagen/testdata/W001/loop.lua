--- Loop writes one list after the other: the second one is read after the first is written.
---@contract all-or-nothing
---@keys  log    list  max=100
---@arg   value  string

local value = ARGV[1]
for i = 1, #KEYS do
  if redis.call('LLEN', KEYS[i]) < 100 then
    redis.call('RPUSH', KEYS[i], value)
  end
end
