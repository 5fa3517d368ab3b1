local kept = redis.call('GET', receipt)
if kept then
  for verdict in string.gmatch(kept, '%d') do
    verdicts[#verdicts + 1] = tonumber(verdict)
  end
  return verdicts
end

-- The member does not exist. A script whose first write frees memory may go on to use some.
redis.call('ZREM', dead, '')
