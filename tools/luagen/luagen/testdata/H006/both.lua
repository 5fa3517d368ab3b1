--- Both does.
---@readonly
---@contract all-or-nothing

