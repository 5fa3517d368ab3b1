-- number is n as text, with all its digits.
local function number(n)
  return string.format('%.0f', n)
end
