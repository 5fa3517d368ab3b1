--- CodeCase does what the test wants.
---@contract all-or-nothing
---@error lower  text

return
