--- Idle refuses where its write changed nothing, and once where it did.
---@contract dup-only
---@key   all  set
---@key   jobs list
---@arg   id   string
---@error GONE  nothing is there

local all, jobs = KEYS[1], KEYS[2]
local id = ARGV[1]
if redis.call('SREM', all, id) == 0 then
  return redis.error_reply('GONE for good')
end
local n = redis.call('LREM', jobs, 1, id)
if n < 1 then
  return redis.error_reply('GONE after the first write')
end
