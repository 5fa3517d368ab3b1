--- Repeats counts again in a repeat.
---@contract all-or-nothing
---@retry safe  the author believes so
---@key n    string
---@key log  list
---@key done set
---@arg id   string

local n, log, done = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
redis.call('LLEN', log)
redis.call('SCARD', done)
redis.call('INCR', n)
if id ~= '' then
  redis.call('RPUSH', log, id)
end
redis.call('SADD', done, id)
if redis.call('SADD', done, id) == 1 then
  redis.call('INCR', n)
end
local seen = redis.call('SISMEMBER', done, id)
local count = seen == 0 and redis.call('INCR', n) or 0
if seen == 1 and count == 0 then
  return
end
redis.call('RPUSH', log, id)
