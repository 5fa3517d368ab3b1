-- A write that follows this push can fail, and LTRIM then takes the push back. So the script tries
-- LTRIM before it pushes: here it removes nothing.
local added = redis.pcall('SADD', names, string.sub(queue, skip + 1))
failure = type(added) == 'table' and added.err
listed[i] = added == 1
if not failure and (i < #KEYS or l > 0) then
  failure = redis.pcall('LTRIM', queue, 0, -1).err
end
