-- The bounds of the header hold for a call that was not made in Go, too.
local least = tonumber(floor)
if not (least and least >= 0 and least < 2 ^ 52) then
  error('floor must be 0 to 4503599627370495')
end
