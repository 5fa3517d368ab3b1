-- The mark and count that a job must have in place of its own; nil when it is in order. The audit saw seen, the
-- time of a death or the stamp of an entry, before it read ready: the job has not moved since.
local function mark_of(kind, id, seen)
  local count = redis.call('HGET', failures, id) or '0'
  local died = redis.call('ZSCORE', dead, id)
  local same = died and tonumber(died) == tonumber(seen) and not redis.call('ZSCORE', leases, id)
  if kind == '5' and same and string.sub(count, 1, 1) == 'b' then
    return string.match(count, '%d+$') or '0'
  elseif kind == '6' and same and string.find(count, '^%d') then
    return 'b' .. count
  elseif kind == '7' and count == '0' and not placed(id) and redis.call('HGET', bodies, id) == ''
    and tonumber(redis.call('ZSCORE', finished, id) or 0) > (tonumber(seen) or 2 ^ 53) then
    return 'x'
  end
end
