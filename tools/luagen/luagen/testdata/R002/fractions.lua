--- Fractions does what the test wants.
---@contract all-or-nothing
---@arg n int
---@reply (a int, b float, c ms)

local n = tonumber(ARGV[1])
return {n / 2, n * 1.5, 1.5}
