--- Never does what the test wants.
---@contract all-or-nothing
---@merge max=64
---@key item string
---@reply int

local out = {}
for row, item in ipairs(KEYS) do
  out[row] = redis.call('INCR', item)
end
return out
