-- What was written to the queue is taken back.
if pushed[i] then
  redis.pcall('LTRIM', queue, pushed[i], -1)
end
if listed[i] then
  redis.pcall('SREM', names, string.sub(queue, skip + 1))
end
