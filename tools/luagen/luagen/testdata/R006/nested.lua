--- Nested does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply (a int, b int)
---@error GONE  it is gone

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 0 then
  redis.error_reply('GONE for good')
end
return {1, redis.error_reply('GONE for good')}
