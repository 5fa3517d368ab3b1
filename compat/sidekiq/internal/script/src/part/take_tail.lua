-- The size of a payload is not known before it is read: so the first are few, and each further read is of
-- three times as many as are there.
local taken, ask = 0, math.min(room, 10)
while ask > 0 and size < 1048576 do
  local payloads = redis.call('LRANGE', queue, -taken - ask, -taken - 1)
  if #payloads > 0 and #queue > 1000 then
    error('queue: at most 1000 bytes')
  end
  local label = #queue .. ':' .. queue
  for at = #payloads, 1, -1 do
    fields[f + 1], fields[f + 2] = string.format('%.0f', id), label .. payloads[at]
    jobs[j + 1], jobs[j + 2], jobs[j + 3] = id, queue, payloads[at]
    id, f, j, size = id + 1, f + 2, j + 3, size + #payloads[at]
  end
  taken = taken + #payloads
  cut[queue] = taken > 0 and -taken - 1 or nil
  ask = #payloads == ask and math.min(3 * taken, room - taken) or 0
end
