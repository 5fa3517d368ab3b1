--- Global does what the test wants.
---@contract all-or-nothing
---@reply int

local count = 1
local x = tonumbr(coutn) + zz
return count + x
