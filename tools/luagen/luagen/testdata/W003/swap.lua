--- Swap refuses where the value before was none, which is a write.
---@contract all-or-nothing
---@key   k    string
---@arg   v    string
---@error NONE nothing was there

local k, v = KEYS[1], ARGV[1]
if not redis.call('SET', k, v, 'GET') then
  return redis.error_reply('NONE was there')
end
