--- CNames makes one Go name twice.
---@readonly
---@keys crate  (ready list)
---@args item  (id string)  max=3
---@reply (crates (ready int)[])

for i = 1, #KEYS do
  redis.call('LLEN', KEYS[i])
end
for i = 1, #ARGV do
  redis.log(redis.LOG_NOTICE, ARGV[i])
end
return {{1}}
