if not failure and l > 0 then
  local added = redis.pcall('ZADD', schedule, unpack(later, 1, l))
  failure = type(added) == 'table' and added.err
end
