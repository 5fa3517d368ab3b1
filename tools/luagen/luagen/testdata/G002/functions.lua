--- Functions calls what later versions of Lua have, and what it has asked for.
---@contract all-or-nothing
---@key   all  set
---@args  id   string  max=10

local all = KEYS[1]
local list = table.pack(unpack(ARGV))
redis.call('SADD', all, os.time(), table.unpack(ARGV))
for _, word in ipairs(string.split(list[1], ',')) do
  redis.call('SADD', all, string.uper(word))
end
local move = table.move and table.move(list, 1, 1, 1)
redis.call('SADD', all, math.tointeger(move[1]))
