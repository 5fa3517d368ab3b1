--- Refused does what the test wants.
---@contract all-or-nothing
---@reply int

local t = cjson.decode('[]')
print(t)
redis.replicate_commands()
local f = loadstring('x')
return #t + f()
