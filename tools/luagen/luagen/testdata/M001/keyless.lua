--- Keyless does what the test wants.
---@contract all-or-nothing
---@retry safe
---@merge max=5
---@reply (a int, b int)?

return false
