--- A does what the test wants.
---@contract all-or-nothing
---@arg xy int
---@arg x_y int
---@arg x__y int
---@reply (s enum(in=1), s_in int)

local xy, x_y, x__y = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
return {1, xy + x_y + x__y}
