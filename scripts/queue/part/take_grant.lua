-- The receipt names the jobs before they are leased. A copy of the call that leased them changes nothing.
if fresh and g > 0 then
  noted = redis.call('SET', receipt, token .. ' ' .. fence .. '\n' .. table.concat(kept, '\n'),
    'PX', string.format('%.0f', math.max(lease, 60000)))
  for n = 1, g, 1000 do
    redis.call('ZADD', leases, unpack(grants, n, math.min(n + 999, g)))
  end
end
if fresh and read > 0 then
  redis.call('LTRIM', ready, read, -1)
end
