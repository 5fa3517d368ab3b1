--- Swap exchanges two keys of each pair and counts it.
---@contract all-or-nothing
---@keys  pair  (left string, right string)  max=50
---@args  pair  (weight int)  max=50

for i = 1, #KEYS, 2 do
  local left, right = KEYS[i], KEYS[i + 1]
  redis.call('MSET', left, ARGV[(i + 1) / 2], right, 1)
end
