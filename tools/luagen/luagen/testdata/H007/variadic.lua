--- Variadic does what the test wants.
---@contract all-or-nothing
---@keys item
---@key last
---@args id string?
---@arg late int
---@args job (a int)? max=3

