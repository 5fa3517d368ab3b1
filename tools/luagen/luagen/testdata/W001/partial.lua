--- Partial writes, and then runs a command that a key of another type stops.
---@contract all-or-nothing
---@key  name   string
---@key  stats  hash
---@key  log    list
---@arg  value  string

local name, stats, log = KEYS[1], KEYS[2], KEYS[3]
local value = ARGV[1]
if value == '' then
  redis.call('RPUSH', log, 'none')
  return
end
redis.call('SET', name, value)
redis.call('HINCRBY', stats, 'sets', 1)
local function note(text)
  redis.call('LPUSH', log, text)
end
note(value)
