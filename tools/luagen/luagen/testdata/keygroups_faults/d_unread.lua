--- DUnread leaves a key of each group alone.
---@readonly
---@keys crate  (ready list, spare set)

for i = 1, #KEYS, 2 do
  redis.call('LLEN', KEYS[i])
end
