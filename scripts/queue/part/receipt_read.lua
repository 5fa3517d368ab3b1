-- The duplicates of the first call: position and id of each, from list.
local rows, n, from = {}, 0, 1
while from <= #list do
  local _, last, position, size = string.find(list, '^(%d+):(%d+):', from)
  rows[n + 1], rows[n + 2] = tonumber(position), string.sub(list, last + 1, last + size)
  n, from = n + 2, last + size + 1
end
