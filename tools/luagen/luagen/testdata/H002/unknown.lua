--- Unknown does what the test wants.
---@contract all-or-nothing
---@kye lock
---@frobnicate x

