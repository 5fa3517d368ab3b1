--- Keys does what the test wants.
---@contract all-or-nothing
---@key lock hash
---@arg name string
---@reply int

local lock = KEYS[1]
local name = ARGV[1]
redis.call('DEL', 'literal')
redis.call('DEL', name)
redis.call('DEL', lock .. ':x')
redis.call('DEL', lock, redis.call('HGET', lock, 'next'))
local function drop(key)
  redis.call('DEL', key)
end
drop(lock)
drop(name)
local function pick()
  return name
end
redis.call('DEL', pick())
local other = lock
if name == 'x' then
  other = name
end
redis.call('DEL', other)
for _, k in ipairs(redis.call('HVALS', lock)) do
  redis.call('DEL', k)
end
local run = drop
run(name)
redis.call('ZUNIONSTORE', lock, 2, lock, name)
redis.call('XREAD', 'COUNT', 1, 'STREAMS', name, '0')
redis.call('DEL', unpack({lock, name}))
redis.call('PUBLISH', name, '1')
redis.call('DEL', name and lock or lock)
redis.call('DEL', drop)
local added = {lock, 'MAX'}
added[#added + 1] = 'field'
added[#added + 1] = name
redis.call('HSET', unpack(added))
redis.call('DEL', string.format('%s:x', lock))
return 1
