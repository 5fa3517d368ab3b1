--- Apart has a slot for each element.
---@contract all-or-nothing
---@keys  item  string = "stock:{$item}"  max=10

for i = 1, #KEYS do
  redis.call('DEL', KEYS[i])
end
