--- Prose speaks.
---@readonly
--- more prose
---@key lock

---@reply int
local lock = KEYS[1]
return redis.call('EXISTS', lock)
