-- It is another's record, and stays as long as that one needs it.
if start ~= '0' then
  redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + rest + 60000)
end
