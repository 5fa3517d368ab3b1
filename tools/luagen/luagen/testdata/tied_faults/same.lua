--- Same makes one key of all elements.
---@contract all-or-nothing
---@keys  item  string = "stock:{$shop}"  max=10

for i = 1, #KEYS do
  redis.call('DEL', KEYS[i])
end
