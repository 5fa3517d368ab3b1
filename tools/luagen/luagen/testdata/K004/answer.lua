--- Answer hands an argument to functions of its own.
---@contract dup-only
---@key jobs hash
---@arg data string
---@arg n int
---@reply string

local jobs = KEYS[1]
local data = ARGV[1]
local function store(id, text)
  redis.call('HSET', jobs, id, text)
  return id .. text
end
local function within(value, least)
  return math.max(tonumber(value), least)
end
local id = data .. '!'
local delay = store(id, ARGV[1])
local n = within(ARGV[2], 1)
return delay .. n
