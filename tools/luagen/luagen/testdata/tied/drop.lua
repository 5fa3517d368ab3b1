--- Drop removes both keys of each item.
---@contract all-or-nothing
---@keys  items (stock string = "stock:{$shop}:$items", log list = "log:{$shop}:$items")  max=50

for i = 1, #KEYS, 2 do
  local stock, log = KEYS[i], KEYS[i + 1]
  redis.call('DEL', stock, log)
end
