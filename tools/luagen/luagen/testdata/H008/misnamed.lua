--- Wrong does what the test wants.
---@contract all-or-nothing

