-- lua.Guard puts this in front of a script. The last key records a lease and the last argument
-- is its token. Both are removed, so that the script reads its own keys and arguments only.
-- If the token does not hold the lease now, by this server's clock, the result is FENCED and
-- nothing is written.
do
  local lease, token = table.remove(KEYS), table.remove(ARGV)
  local kind, held, over = redis.call('TYPE', lease).ok, false, false
  if kind == 'string' then
    -- A lock, see lock_acquire.lua. A free one has the owner -.
    local owner, after = string.match(redis.call('GET', lease), '^2 %d+ %d %S+ (%S+) %d+ (%d+) ')
    held = owner == token and owner ~= '-'
    over = held and redis.call('PTTL', lease) <= tonumber(after)
  elseif kind == 'zset' then
    -- A semaphore: tokens, scored by the last ms of each lease.
    local ends, time = redis.call('ZSCORE', lease, token), redis.call('TIME')
    held = ends ~= false
    over = held and math.floor(time[1] * 1000 + time[2] / 1000) > tonumber(ends)
  end
  if over then
    return redis.error_reply('FENCED the lease is over')
  elseif not held then
    return redis.error_reply('FENCED the lease is not held with this token')
  end
end
