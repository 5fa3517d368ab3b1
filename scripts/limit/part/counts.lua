-- The limits are KEYS[first] and on. A row of ARGV begins at 4 * i + at.
local limits = #KEYS - first + 1
if limits > 64 then
  error('limit: at most 64')
end
if #ARGV > 4 * 64 + at + 3 then
  error('row: at most 64')
end
if limits < 1 or #ARGV ~= 4 * limits + at + 3 then
  error('limit: one at least, and a row for each')
end
