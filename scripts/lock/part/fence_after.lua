-- fence_after is the next fence: the server's time, or one more than the fence and the floor given.
local function fence_after(fence, floor)
  return string.format('%.0f', math.max(now_us, fence + 1, floor + 1))
end
