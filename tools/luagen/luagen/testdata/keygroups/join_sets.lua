--- JoinSets looks at pairs of keys.
---@readonly
---@keys pair (left set, right set)
---@reply int

local n = 0
for i = 1, #KEYS, 2 do
  local left, right = KEYS[i], KEYS[i + 1]
  n = n + redis.call('SCARD', left) + redis.call('SCARD', right)
end
return n
