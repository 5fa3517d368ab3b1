--- Count counts, which a server takes for a write.
---@readonly
---@key seen string
---@reply int

local seen = KEYS[1]
return redis.call('PFCOUNT', seen)
