--- Loops leaves its first loop by return alone, and the second one by break.
---@readonly
---@key   h  hash
---@arg   mode  string
---@reply int

local h, mode = KEYS[1], ARGV[1]
if mode == 'a' then
  local i = 1
  while true do
    for _, word in ipairs({'x', 'y'}) do
      if word == mode then break end
    end
    if redis.call('HEXISTS', h, i) == 0 then return i end
    i = i + 1
  end
elseif mode == 'b' then
  repeat
    if redis.call('HEXISTS', h, mode) == 0 then return 1 end
  until false
end
while true do
  if redis.call('HEXISTS', h, mode) == 0 then break end
  return 1
end
