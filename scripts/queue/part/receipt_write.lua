-- The receipt is last: it says that all is in. See queue_receipt_read.lua for the duplicates.
if not failure then
  for i = 1, dup, 2 do
    receipted[#receipted + 1] = duplicates[i] .. ':' .. #duplicates[i + 1] .. ':' .. duplicates[i + 1]
  end
  local done = redis.pcall('SET', receipt, table.concat(receipted), 'PX', keep)
  failure = done.err
end
