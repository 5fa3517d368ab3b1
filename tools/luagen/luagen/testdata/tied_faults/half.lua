--- Half has a template for one key of two.
---@contract all-or-nothing
---@keys  item  (a string = "a:{$shop}:$item", b list)  max=10

for i = 1, #KEYS, 2 do
  local a, b = KEYS[i], KEYS[i + 1]
  redis.call('DEL', a, b)
end
