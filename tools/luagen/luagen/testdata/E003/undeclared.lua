--- Undeclared does what the test wants.
---@contract all-or-nothing
---@key lock
---@reply int
---@error GONE  x

local lock = KEYS[1]
local r = redis.pcall('GET', lock)
if r.err then return {err = r.err} end
if r == '1' then error('HELD by another') end
local function fail(code)
  return redis.error_reply(code)
end
if r == '2' then return fail('LOST it is') end
return redis.error_reply('HELD by ' .. r)
