--- Syntax does what the test wants.
---@contract all-or-nothing

local a = 1;;
