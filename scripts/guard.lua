-- lua.Guard puts this in front of a script. The last key records a lease and the last argument
-- is its token. Both are removed, so that the script reads its own keys and arguments only.
-- If the token does not hold the lease now, by this server's clock, the result is FENCED and
-- nothing is written.
do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local kind, held, over = redis.call('TYPE', lease).ok, false, false
  if kind == 'string' then
    -- A lock, see lock_acquire.lua. A free one has the owner -.
    local owner, start, ttl = string.match(redis.call('GET', lease) or '', '^[^ ]* [^ ]* ([^ ]+) (%d+) (%d+)')
    held = owner == token and owner ~= '-'
    over = held and now >= start + ttl * 1000
  elseif kind == 'zset' then
    -- A semaphore: tokens, scored by the end of each lease in ms.
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
