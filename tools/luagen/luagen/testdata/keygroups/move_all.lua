--- MoveAll pushes each entry to the list of its crate, and counts it there.
---@contract dup-only
---@retry never
---@key  receipt  string
---@keys crate  (ready list, count hash, other)  max=4  where to
---@arg  keep  ms  min=1
---@args entry  (crate int, body bytes)  max=100  crate: its place, from 0
---@reply (total int, crates (ready int, left int)[])

local receipt = KEYS[1]
local keep = ARGV[1]
local function push(key, body)
  redis.call('RPUSH', key, body)
end
for i = 2, #KEYS, 3 do
  local ready, count = KEYS[i], KEYS[i + 1]
  redis.call('LLEN', ready)
  redis.call('HLEN', count)
  redis.call('TYPE', KEYS[i + 2])
end
local total, counts, n = 0, {}, 0
for i = 2, #ARGV, 2 do
  local crate, body = ARGV[i], ARGV[i + 1]
  local at = 2 + 3 * crate
  local ready, count = KEYS[at], KEYS[at + 1]
  push(ready, body)
  total = total + 1
  counts[n + 1], counts[n + 2] = redis.call('HINCRBY', count, 'n', 1), redis.call('LLEN', KEYS[at])
  n = n + 2
end
redis.call('SET', receipt, total, 'PX', keep)
return {total, counts}
