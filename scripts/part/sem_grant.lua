-- due returns after how many whole ms enough leases are over for the weight to fit, read from at
-- most 64 members, and the note of the first holder.
local function due(weight)
  local rest, last, note = used + weight - limit, now, ''
  local ends = redis.call('ZRANGE', permits, now, 1e14, 'BYSCORE', 'LIMIT', 0, 64, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local part = weigh(ends[i])
    if not part then
      note = note ~= '' and note or string.match(ends[i], '\n(.*)$') or ''
    elseif rest <= 0 then
      break
    else
      rest, last = rest - part, ends[i + 1]
    end
  end
  return math.max(math.floor(last) - now + 1, 1), note
end

-- grant gives permits to the waiters at the head of the queue that fit and are alive. It
-- notifies the first waiter that does not fit when to check. The owner needs no notification: its
-- lease is the whole ttl. It returns the fence of the owner if the owner is granted one.
local function grant()
  local granted, mark = 0
  unreachable[string.match(owner, '^[^.]*')] = nil -- it speaks
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      break
    end
    local token, lease, note = string.match(head, '^(%S+) (%d+)\n(.*)$')
    local process = string.match(token or '', '^[^.]*')
    local weight, there = weigh(token or '') or 0, channel .. process
    local score = redis.call('ZSCORE', permits, token or '')
    local sound = weight > 0 and #lease <= 13 and (token == owner or not unreachable[process])
    if sound and (weight > limit or score and tonumber(score) <= 0) then
      notify(there, 'f ' .. token) -- the waiter learns the other limit, or that the permit was released
    elseif sound and (used + weight > limit and not score or granted == 64) then
      if token == owner or subscribed(there) and notify(there, 'n ' .. token .. ' ' .. (due(weight))) then
        notify_beyond(granted, process, (due(weight)))
        break
      end
    elseif sound then
      hold(token, score and 0 or weight, token == owner and ttl or tonumber(lease), note, token ~= owner)
      if token == owner then
        mark, granted = fence, granted + 1
      elseif subscribed(there) and notify(there, 'g ' .. token .. ' ' .. number(fence) .. ' '
        .. number(micros) .. ' ' .. lease .. ' ' .. permits) then
        granted = granted + 1
      else
        unreachable[process] = true
        used = used - weight
        redis.call('ZADD', permits, number(1e15 + used), 'used', 0, token)
        redis.call('ZREM', permits, token, token .. '\n' .. note)
      end
    end
    redis.call('ZREM', queue, head)
  end
  return mark
end
