--- IdleOnly refuses where its writes changed nothing.
---@contract dup-only
---@key   all  set
---@key   jobs list
---@arg   id   string
---@error GONE  nothing is there

local all, jobs = KEYS[1], KEYS[2]
local id = ARGV[1]
local n = tonumber(redis.call('SADD', all, id))
if n ~= 1 then
  return redis.error_reply('GONE already')
elseif redis.call('SREM', all, id) > 0 then
  return
end
local next_id = redis.call('LPOP', jobs)
if not next_id then
  return redis.error_reply('GONE too')
end
