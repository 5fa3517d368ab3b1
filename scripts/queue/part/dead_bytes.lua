-- The size of the dead set changes by weight. A foreign text, to which Redis cannot add, stops no call: an
-- audit mends it.
local sum = redis.pcall('HINCRBY', control, 'dead_bytes', weight)
if sum == 0 then
  redis.call('HDEL', control, 'dead_bytes')
elseif type(sum) == 'table' and not string.find(sum.err, 'not an integer', 1, true)
    and not string.find(sum.err, 'overflow', 1, true) then
  error(sum)
end
