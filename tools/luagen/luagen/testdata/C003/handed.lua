--- Handed hands redis.call on, where nobody sees what it runs.
---@contract dup-only
---@key   lock  string

local lock = KEYS[1]
local call, r = redis.call, redis
local function apply(f) return f('DEL', 'x') end
apply(redis.call)
apply(call)
xpcall(redis.call, 'DEL', 'x')
local late
late = redis.call
local again = call
local list = {redis.pcall}
late('DEL', 'x')
again('DEL', 'x')
list[1]('DEL', 'x')
r.call('DEL', 'x')
local ok = pcall(redis.call, 'DEL', lock)
local same = pcall(call, 'DEL', lock)
if ok and same then
  call('SET', lock, 1)
end
