--- Top does what the test wants.
---@readonly
---@reply string[]

return false
