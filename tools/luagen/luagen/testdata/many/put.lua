--- Put sets both fields of a row, for ttl.
---@contract all-or-nothing
---@retry safe  the same values again
---@merge max=10
---@key one string = "put:{$name}:1"
---@key two string = "put:{$name}:2"
---@arg first bytes
---@arg second bytes
---@arg ttl ms min=1

for row = 1, #KEYS, 2 do
  local one, two = KEYS[row], KEYS[row + 1]
  local at = (row - 1) / 2 * 3
  local first, second, ttl = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  redis.call('SET', one, first, 'PX', ttl)
  redis.call('SET', two, second, 'PX', ttl)
end
