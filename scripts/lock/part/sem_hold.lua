-- weigh returns the weight of a permit, nil for any other member.
local function weigh(member)
  return tonumber((string.match(member, '^[^\n]*:(%d+)$')))
end

-- bury takes back the permits of dead holders, then deletes those released 10 s ago: in that
-- order, so that many released permits do not hide a dead holder. It notes the processes that were
-- handed a permit and never spoke. It reports whether there may be more.
local unreachable = {}
local function bury()
  local found = redis.call('ZRANGE', permits, '(' .. now, 10000 - now, 'BYSCORE', 'REV', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #found, 2 do
    local weight = weigh(found[i])
    if weight and tonumber(found[i + 1]) > 0 then
      used = used - weight
      redis.call('ZADD', permits, number(1e15 + used), 'used', 0, found[i])
      if found[i + 1] % 1 == 0.5 then
        unreachable[string.match(found[i], '^[^.]*')] = true
      end
    end
    redis.call('ZREM', permits, found[i])
  end
  return #found == 200
end

-- hold stores a permit, in one command. The end of a lease that is not confirmed has a half behind it.
local function hold(token, weight, lease, note, unconfirmed)
  fence, used = math.max(fence + 1, micros), used + weight
  local over = number(now + lease) .. (unconfirmed and '.5' or '')
  local sum, bound = number(1e15 + used), number(1e15 + limit)
  if known then
    stay(lease + 60000)
  end
  if note == '' then
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence')
  else
    redis.call('ZADD', permits, over, token, sum, 'used', bound, 'limit', number(fence), 'fence',
      over, token .. '\n' .. note)
  end
  if not known then
    stay(lease + 60000)
  end
  known = true
end
