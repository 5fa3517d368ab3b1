-- A lease is a key with its holder's token.
do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  if redis.call('GET', lease) ~= token then
    return redis.error_reply('FENCED the lease is not held with this token')
  end
end
