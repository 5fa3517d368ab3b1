-- The record belongs to another owner, and stays as long as that owner needs it.
if start ~= '0' then
  redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + rest + 60000)
end
