--- Paths returns on some ways only.
---@contract all-or-nothing
---@key lock
---@reply int

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 1 then
  do
    return 1
  end
elseif redis.call('DEL', lock) == 1 then
  return 2
end
