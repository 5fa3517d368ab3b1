--- Two swaps.
---@readonly
---@key   lock
---@reply int

local lock = KEYS[1]
  --< part/swap.lua
local x, y = swap(1, 2)
return redis.call('EXIST', lock)
