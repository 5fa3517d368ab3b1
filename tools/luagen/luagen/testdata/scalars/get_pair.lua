--- GetPair reads two fields, if there are any.
---@readonly
---@key job  hash
---@reply (owner string, ttl ms)?

local job = KEYS[1]
local function read(key)
  local owner = redis.call('HGET', key, 'o')
  if not owner then
    return false
  end
  return {owner, redis.call('PTTL', key)}
end
return read(job)
