-- Notify the consumer that has waited longest. An entry whose wait is over is removed, and a
-- name whose channel has no subscriber was that of a dead process: the next one has its turn. The
-- channel begins with the key: no data chooses where the caller publishes. This is only a
-- hint: where the user may not run one of the commands, all else is as before.
local over = redis.pcall('ZREMRANGEBYSCORE', wake, '-inf', '(' .. now_ms)
for _ = 1, type(over) == 'number' and 64 or 0 do
  local first = redis.pcall('ZPOPMIN', wake)
  if first.err or not first[1] or redis.pcall('PUBLISH', wake .. ':' .. first[1], '') ~= 0 then
    break
  end
end
