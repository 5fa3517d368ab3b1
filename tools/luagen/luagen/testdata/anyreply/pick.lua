--- Pick returns a number, a list or nothing.
---@readonly
---@key lock
---@reply any

local lock = KEYS[1]
if redis.call('EXISTS', lock) == 0 then
  return
end
if redis.call('TYPE', lock).ok == 'list' then
  return redis.call('LRANGE', lock, 0, 9)
end
return 1
