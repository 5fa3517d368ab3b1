do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  if redis.call('GET', lease) ~= token then return redis.error_reply('FENCED') end
end
