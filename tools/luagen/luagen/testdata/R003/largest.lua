--- Largest is a number that an int does not hold.
---@readonly
---@reply (most uint, least int, wrong uint)

return {'18446744073709551615', '18446744073709551615', '-1'}
