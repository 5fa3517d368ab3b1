--- Tags does what the test wants.
---@contract all-or-nothing
---@key a = "a:{$x}"
---@key b = "b:{$y}"
---@key c = "c:$x"

