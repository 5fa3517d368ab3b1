--- Seeded gives math.random a seed of the caller.
---@contract all-or-nothing
---@arg seed int
---@reply int

local seed = tonumber(ARGV[1])
math.randomseed(seed)
return math.random(10)
