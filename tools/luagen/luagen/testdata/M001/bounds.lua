--- Bounds does what the test wants.
---@contract all-or-nothing
---@retry safe
---@merge max=5000

return
