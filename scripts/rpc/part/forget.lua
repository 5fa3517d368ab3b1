-- The methods of a node stand in parts of 500.
for i = 0, 19 do
  local given = redis.call('HGET', serves, dead .. '\0' .. i)
  if not given then
    break
  end
  for method in string.gmatch(string.sub(given, 1, 66000), '[^\n]+') do
    redis.call('ZREM', methods, method .. '\0' .. dead)
  end
  redis.call('HDEL', serves, dead .. '\0' .. i)
end
