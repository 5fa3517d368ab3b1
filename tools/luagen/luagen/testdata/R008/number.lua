--- Number makes numbers of replies that can be missing: tonumber(false) is nil.
---@readonly
---@key    h  hash
---@reply  (a int, b int?, c bool)

local h = KEYS[1]
local a = tonumber(redis.call('HGET', h, 'a'))
return {a, tonumber(redis.call('HGET', h, 'b')), tonumber(redis.call('HGET', h, 'c'))}
