--- Asked makes numbers of replies that it tests, or gives a value.
---@contract all-or-nothing
---@retry  safe
---@key    h  hash
---@key    n  string
---@reply  (a int, b int?, c int, d int?)
---@error  NOT_THERE  a field is missing

local h, n = KEYS[1], KEYS[2]
local a = tonumber(redis.call('HGET', h, 'a'))
local c = redis.call('HGET', h, 'c')
if not a or not c then
  return redis.error_reply('NOT_THERE none')
end
redis.call('SET', n, a, 'NX')
return {a, tonumber(redis.call('HGET', h, 'b')) or false, tonumber(c), redis.call('HGET', h, 'd')}
