--- Unpack does what the test wants.
---@contract all-or-nothing
---@key lock list
---@args id string max=5000

local lock = KEYS[1]
local t = {}
for i = 1, #ARGV do t[i] = ARGV[i] end
redis.call('RPUSH', lock, unpack(t))
redis.call('RPUSH', lock, unpack(ARGV, 1))
redis.call('RPUSH', lock, unpack(t, 1, 100))
local two = {1, 2}
redis.call('RPUSH', lock, unpack(two))
