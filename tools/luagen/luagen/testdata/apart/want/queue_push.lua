--- QueuePush adds jobs to a queue.
---@contract dup-only  an error half-way repeats jobs
---@retry never
---@key   ready  list  = "q:{$queue}:r"
---@key   token  string = "q:{$queue}:t:$receipt"
---@arg   receipt  string  names this call
---@args  job  (id string, due time.ms?, body bytes)  max=1000 bytes=2097152  what to add
---@reply int  jobs added

local ready, token = KEYS[1], KEYS[2]
local receipt = ARGV[1]
local n = 0
for i = 2, #ARGV, 3 do
  local id, due, body = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  n = n + redis.call('RPUSH', ready, id .. body .. (due or ''))
end
redis.call('SET', token, receipt)
return n
