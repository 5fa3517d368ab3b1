--- Clock reads a clock that Redis 7.0 does not have.
---@readonly
---@reply string

return string.format('%.6f', os.clock())
