--- Merged does what the test wants.
---@contract all-or-nothing
---@retry safe
---@merge max=64
---@key item string
---@arg token string
---@reply int

local replies = {}
for row, item in ipairs(KEYS) do
  redis.call('SET', item, '1')
  replies[row] = 1
end
return replies
