-- void_lives reports whether there are void tokens now.
local function void_lives(void)
  return void ~= '-' and time[1] <= string.match(void, '^%d*')
end
