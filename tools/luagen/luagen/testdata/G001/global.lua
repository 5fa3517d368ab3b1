--- Global does what the test wants.
---@contract all-or-nothing
---@reply int

n = 1
function f() end
return 1
