--- Same asks only for what a repeat finds as it was.
---@contract all-or-nothing
---@retry safe  the author believes so
---@key n      string
---@key limit  string
---@key log    list
---@arg id     string

local n, limit, log = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
redis.call('LLEN', log)
local most, have = redis.call('GET', limit), redis.call('GET', n)
if not most then
  return
end
if tonumber(have or 0) < tonumber(most) then
  redis.call('INCR', n)
end
if not redis.call('LPOS', log, id) then
  redis.call('RPUSH', log, id)
end
