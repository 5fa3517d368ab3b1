--- Named returns errors that a function or a local holds.
---@contract dup-only
---@allow N003 this case is about another rule
---@key a string
---@arg n int
---@error BAD  the number is bad
---@reply int

local a, n = KEYS[1], tonumber(ARGV[1])
local function bad(why)
  if why == '' then
    return {err = 'BAD number'}
  end
  return redis.error_reply('BAD ' .. why)
end
local function checked(value)
  if value < 0 then
    return redis.error_reply('BAD value')
  end
  return value
end
local over = redis.error_reply('BAD over the limit')
if n == 0 then
  return over
end
local was = redis.call('INCRBY', a, n)
if was < 0 then
  return bad('below zero')
end
if was > 100 then
  return over
end
return checked(was)
