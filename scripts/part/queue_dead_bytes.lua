-- The size of the dead set changes by weight. A foreign text, to which Redis cannot add, must stop no death.
local sum = redis.pcall('HINCRBY', control, 'dead_bytes', weight)
if type(sum) == 'table' then
  if not string.find(sum.err, 'not an integer', 1, true) and not string.find(sum.err, 'overflow', 1, true) then
    error(sum)
  end
  redis.call('HSET', control, 'dead_bytes', weight)
elseif sum == 0 then
  redis.call('HDEL', control, 'dead_bytes')
end
