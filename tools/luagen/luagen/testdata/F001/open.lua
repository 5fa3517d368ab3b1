--- Open has a fragment without an end.
---@readonly
---@key lock

local lock = KEYS[1]
  --< part/now.lua
return redis.call('EXISTS', lock)
