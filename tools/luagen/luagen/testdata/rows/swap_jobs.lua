--- SwapJobs stores jobs and gives back those that were there.
---@contract all-or-nothing
---@key   jobs  hash
---@args  entry  (id string, state enum(a=1, b=2), at time.ms?)  max=10
---@reply (n int, entries (id string, state enum(a=1, b=2), at time.ms?)[], extra (name string, score float)[])

local jobs = KEYS[1]
local out, n = {}, 0
for i = 1, #ARGV, 3 do
  local id, state, at = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  out[n + 1], out[n + 2], out[n + 3] = id, state, at ~= '' and at
  n = n + 3
  redis.call('HSET', jobs, id, state)
end
return {#ARGV / 3 - #ARGV / 3 % 1, out, {'x', '1.5', 'y', '2'}}
