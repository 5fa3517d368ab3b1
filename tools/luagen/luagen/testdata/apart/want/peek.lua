--- Peek tells whether a key is there.
---
---@readonly
---@guard guard.lua
---@key    stock  string
---@reply  bool

local stock = KEYS[1]
return redis.call('EXISTS', stock)
