local function swap(a, b)
  last = a
  return b, a
end
