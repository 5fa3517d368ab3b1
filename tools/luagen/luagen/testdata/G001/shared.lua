--- Shared writes to tables that all scripts share.
---@contract all-or-nothing
---@reply int

local strings = string
function table.extend(a) return a end
strings.trim = function(s) return s end
_G.n = 1
rawset(_G, 'n', 1)
setmetatable(math, {})
ARGV.n = 1
setmetatable(KEYS, {})
return #table.extend({})
