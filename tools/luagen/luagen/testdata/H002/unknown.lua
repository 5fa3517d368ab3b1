--- Unknown does what the test wants.
---@contract all-or-nothing
---@kye lock
---@frobnicate x
---@param n number
---@cost O(1)

