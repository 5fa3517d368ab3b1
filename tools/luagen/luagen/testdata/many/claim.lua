--- Claim reserves an item for the first token that asks.
---@contract all-or-nothing  one write
---@retry safe  the holder's token gets the same reply
---@merge max=64
---@key   item   string  the token that has it
---@arg   token  string
---@reply (mine bool, holder string)

if #KEYS > 64 then
  error('at most 64 rows')
end
local replies = {}
for row, item in ipairs(KEYS) do
  local token = ARGV[row]
  local holder = redis.call('SET', item, token, 'NX', 'GET') or token
  replies[2 * row - 1], replies[2 * row] = holder == token and 1 or 0, holder
end
return replies
