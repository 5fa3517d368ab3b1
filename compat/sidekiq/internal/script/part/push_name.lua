-- What is pushed before another write may have to be taken back. LTRIM, which removes nothing here,
-- is refused before.
local added = redis.pcall('SADD', names, string.sub(queue, skip + 1))
failure = type(added) == 'table' and added.err
listed[i] = added == 1
if not failure and (i < #KEYS or l > 0) then
  failure = redis.pcall('LTRIM', queue, 0, -1).err
end
