--- FailedOnly refuses where its write has failed.
---@contract dup-only
---@key   log  list
---@arg   id   string
---@error FULL no more

local log = KEYS[1]
local id = ARGV[1]
local ok, r = pcall(redis.call, 'LPUSH', log, id)
if not ok then
  return redis.error_reply('FULL of ids')
end
