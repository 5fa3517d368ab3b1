--- BBody uses a group of keys otherwise than declared.
---@contract dup-only
---@key  first  string
---@keys crate  (ready list, count hash, spare set)  max=400

local first = KEYS[1]
redis.call('GET', first)
for i = 2, #KEYS, 2 do
  redis.call('LLEN', KEYS[i])
end
for i = 2, #KEYS, 3 do
  local count, ready = KEYS[i], KEYS[i + 1]
  redis.call('HLEN', count)
  redis.call('LLEN', KEYS[i + 1])
  redis.call('LLEN', ready)
  redis.call('EXISTS', KEYS[i + 3])
end
redis.call('HLEN', KEYS[2])
redis.call('HLEN', KEYS[6])
redis.call('DEL', unpack(KEYS, 2))
for _, key in ipairs(KEYS) do
  redis.call('SCARD', key)
end
