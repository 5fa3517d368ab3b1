-- From the first --- line on this is $file, byte for byte. What stands before it
-- checks a lease: the last key records it and the last argument is its token, both
-- added by lua.Guard. Unless the token holds the lease now, by this server's clock,
-- the answer is FENCED and nothing is written.
do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local kind, held, over = redis.call('TYPE', lease).ok, false, false
  if kind == 'string' then
    -- fence waiting owner start_us ttl_ms delay note. A free lease has the owner -.
    local owner, start, ttl = string.match(redis.call('GET', lease) or '', '^[^ ]* [^ ]* ([^ ]+) (%d+) (%d+)')
    held = owner == token and owner ~= '-'
    over = held and now >= start + ttl * 1000
  elseif kind == 'zset' then
    -- Tokens, scored by the end of each lease in ms.
    local ends = redis.call('ZSCORE', lease, token)
    held = ends ~= false
    over = held and now >= ends * 1000
  end
  if over then
    return redis.error_reply('FENCED the lease is over')
  elseif not held then
    return redis.error_reply('FENCED the lease is not held with this token')
  end
end
