--- Several returns one of several errors.
---@contract all-or-nothing
---@key   lock  string
---@arg   n     int
---@error ONE   the first
---@error TWO   the second

local lock, n = KEYS[1], tonumber(ARGV[1])
local function fail(text) return redis.error_reply(text) end
if n == 1 then return fail('ONE is wrong') end
if n == 2 then return fail('TWO is wrong') end
if n > 3 then return redis.error_reply(n == 4 and 'ONE more' or 'THREE more') end
redis.call('SET', lock, n)
