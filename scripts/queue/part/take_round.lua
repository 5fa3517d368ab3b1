-- One look at the head of ready, or at what a copy has: a job is taken, all else is dropped.
local asked = room
local entries = copied or asked > 0 and redis.call('LRANGE', ready, read, read + asked - 1) or {}
--< part/take_due.lua
if #entries == 0 then
  break
end
local ids = {}
for n = 1, #entries do
  -- A foreign entry has no stamp before its colon. It names no job and is dropped: it must not block the head.
  ids[n] = string.match(entries[n], '^%d+:(.*)$') or ''
end
local found = redis.call('HMGET', bodies, unpack(ids, 1, #ids))
local counts = state.failed and redis.call('HMGET', failures, unpack(ids, 1, #ids)) or {}
local more = state.optioned and redis.call('HMGET', options, unpack(ids, 1, #ids)) or {}
for n = 1, #ids do
  local id, body, count = ids[n], found[n], counts[n]
  if count == 'x' then
    -- A cancelled job kept its id until here, so that no other could take the
    -- entry for its own.
    redis.call('HDEL', bodies, id)
    redis.call('HDEL', failures, id)
    body = false
  elseif count and string.sub(count, 1, 1) == 'b' then
    -- A job that was buried while ready has no entry from now on.
    count = string.match(count, '%d+$') or '0'
    if count ~= '0' then
      redis.call('HSET', failures, id, count)
    else
      redis.call('HDEL', failures, id)
    end
    body = not redis.call('ZSCORE', dead, id) and body
  end
  if body then
    size = size + #body
    if j > 0 and size > bytes then
      room = 0
      break
    end
    local stamp = string.sub(entries[n], 1, #entries[n] - #id - 1)
    -- The last digits of its count, nine at most: a foreign text must end no worker.
    local failed = count and tonumber(string.match(string.sub(count, -9), '%d*$')) or 0
    jobs[j + 1], jobs[j + 2], jobs[j + 3], jobs[j + 4] = id, body, math.min(tonumber(stamp), 2 ^ 53), failed
    grants[g + 1], grants[g + 2] = fence, id
    kept[#kept + 1] = entries[n]
    if more[n] then
      extras[#extras + 1], extras[#extras + 2] = j / 4, more[n]
    end
    j, g, room = j + 4, g + 2, room - 1
  else
    dropped = dropped + 1
  end
  read = read + 1
end
if #entries < asked then
  break
elseif round == 8 then
  room = 0 -- what is left here comes before the jobs of later queues
end
