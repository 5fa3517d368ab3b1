--- Loops does what the test wants.
---@contract all-or-nothing
---@arg n int
---@args job (id string, body bytes) max=5
---@reply int

local n = tonumber(ARGV[1])
for i = 1, #ARGV, 2 do
  n = n + #ARGV[i]
end
for i = 2, #ARGV do
  n = n + #ARGV[i]
end
for i = 2, #ARGV, 2 do
  n = n + #ARGV[i + 2]
end
for _, v in ipairs(ARGV) do
  n = n + #v
end
return select('#', unpack(ARGV)) + n
