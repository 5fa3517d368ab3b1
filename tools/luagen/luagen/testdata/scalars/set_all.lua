--- SetAll writes and says nothing.
---@contract all-or-nothing
---@allow W002 what cannot be undone stays
---@key a
---@key b

local a, b = KEYS[1], KEYS[2]
local call = redis.call
local target = a
if call('EXISTS', a) == 1 then
  target = b
end
call('SET', target, '1')
local function put(command, key, ...)
  return call(command, key, ...)
end
put('SADD', b, '1')
for _, key in ipairs({a, b}) do
  redis.pcall('PERSIST', key)
end
