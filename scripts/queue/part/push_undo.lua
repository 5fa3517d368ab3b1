-- What was written is taken back. A name whose time was over is written over, not removed
-- and added: the second may not be allowed.
for i = 1, #fields, 2 do
  redis.pcall('HDEL', bodies, fields[i])
end
for i = 1, #extras, 2 do
  redis.pcall('HDEL', options, extras[i])
end
for i = 1, #names, 4 do
  local was = lapsed[names[i + 3]]
  redis.pcall('HDEL', unique, names[i + 2])
  if was then
    redis.pcall('HSET', unique, names[i], was[1])
  else
    redis.pcall('HDEL', unique, names[i])
  end
end
for i = 2, #ends, 2 do
  local was = lapsed[ends[i]]
  if was then
    redis.pcall('ZADD', expiry, was[2], ends[i])
  else
    redis.pcall('ZREM', expiry, ends[i])
  end
end
for i = 2, #dues, 2 do
  redis.pcall('ZREM', scheduled, dues[i])
end
if length == 0 then
  redis.pcall('DEL', ready)
else
  redis.pcall('LTRIM', ready, 0, length - 1)
end
