--- Turns writes in one turn and refuses in the next.
---@contract all-or-nothing
---@key   all  hash
---@args  job   (id string, n int)  max=10
---@error BAD   a number below 0

local all = KEYS[1]
for i = 1, #ARGV, 2 do
  local id, n = ARGV[i], tonumber(ARGV[i + 1])
  if n < 0 then
    return redis.error_reply('BAD number')
  end
  redis.call('HSET', all, id, n)
end
