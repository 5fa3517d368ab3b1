--- Names does what the test wants.
---@contract all-or-nothing
---@key lock
---@key fence
---@arg owner string
---@args job (id string, body bytes) max=5
---@reply int

local fence, lock = KEYS[1], KEYS[2]
local owner = ARGV[1]
local again = ARGV[1]
lock = fence
redis.call('DEL', KEYS[1], lock)
redis.call('SET', lock, ARGV[1] .. owner .. again)
for i = 2, #ARGV, 2 do
  local body, id = ARGV[i], ARGV[i + 1]
  redis.call('SET', fence, body .. id)
end
local n
n = ARGV[1]
return n
