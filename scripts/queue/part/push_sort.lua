-- A job that the queue knows, or whose unique name another job holds, is a duplicate. A
-- cancelled job keeps its id, under the mark x, for as long as its old entry may be in
-- ready: that entry would deliver a new job of that id. An id that its caller chose is known after its end, too.
local known = fresh ~= '1' and (seen[id] or redis.call('HEXISTS', bodies, id) == 1
  or redis.call('HGET', failures, id) == 'x'
  or tonumber(redis.call('ZSCORE', finished, id) or 0) > now - 60000) and id
local ttl, name, more
if extra ~= '' and not known then
  local size, from
  ttl, size, from = string.match(extra, '^(%d+):(%d+):()')
  name, more = string.sub(extra, from, from + size - 1), string.sub(extra, from + size)
end
if name and name ~= '' then
  known = held[name]
  local holder = not known and redis.call('HGET', unique, 'k:' .. name)
  local over = holder and redis.call('ZSCORE', expiry, name)
  if over and tonumber(over) > now then
    known = holder
  elseif over then
    lapsed[name] = {holder, over} -- for an undo
  end
end
if known then
  duplicates[dup + 1], duplicates[dup + 2] = position, known
  dup = dup + 2
else
  seen[id] = true
  fields[f + 1], fields[f + 2] = id, body
  f = f + 2
  if more and more ~= '' then
    extras[o + 1], extras[o + 2] = id, more
    o = o + 2
  end
  if name and name ~= '' then
    held[name] = id
    names[u + 1], names[u + 2], names[u + 3], names[u + 4] = 'k:' .. name, id, 'j:' .. id, name
    u = u + 4
    -- A name without an end has one that no clock reaches.
    ends[x + 1], ends[x + 2] = ttl == '0' and '9007199254740991' or string.format('%.0f', now + ttl), name
    x = x + 2
  end
  local at = due == '0' and 0 or tonumber(due)
  if at < 0 then
    at = now + 1 - at -- now is rounded down
  end
  if at > now then
    dues[d + 1], dues[d + 2] = string.format('%.0f', at), id
    d = d + 2
    soonest = math.min(soonest or at, at)
  else
    e = e + 1
    entries[e] = now_ms .. ':' .. id
  end
end
