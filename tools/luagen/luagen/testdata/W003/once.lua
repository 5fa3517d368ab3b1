--- Once tests in each turn, and leaves with its first write.
---@contract all-or-nothing
---@key   jobs  hash
---@args  id    string  max=10
---@error BAD   an empty id

local jobs = KEYS[1]
for i = 1, #ARGV do
  local id = ARGV[i]
  if id == '' then
    return redis.error_reply('BAD id')
  end
  if redis.call('HEXISTS', jobs, id) == 0 then
    redis.call('HSET', jobs, id, 1)
    return
  end
end
for i = 1, #ARGV do
  local id = ARGV[i]
  if id == 'x' then
    return redis.error_reply('BAD id')
  end
  redis.call('HSET', jobs, id, 2)
  break
end
