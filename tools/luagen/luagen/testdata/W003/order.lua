--- Order does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int
---@error GONE  x

local lock = KEYS[1]
local function mark()
  redis.call('SET', lock, 1)
end
if redis.call('EXISTS', lock) == 0 then
  return redis.error_reply('GONE for good')
end
mark()
if redis.call('GET', lock) == 'x' then
  return redis.error_reply('GONE for good')
end
return 1
