--- Failed refuses where its write has failed, and once where one before it has not.
---@contract dup-only
---@key   n    string
---@key   log  list
---@arg   id   string
---@error FULL no more

local n, log = KEYS[1], KEYS[2]
local id = ARGV[1]
local r = redis.pcall('INCR', n)
if type(r) == 'table' and r.err then
  return redis.error_reply('FULL with ' .. r.err)
end
if r["err"] ~= nil then
  return redis.error_reply('FULL again')
end
local ok = pcall(redis.call, 'LPUSH', log, id)
if not ok then
  return redis.error_reply('FULL after the first write')
end
