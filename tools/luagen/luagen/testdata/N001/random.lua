--- Random does what the test wants.
---@contract all-or-nothing
---@reply int

return math.random(10)
