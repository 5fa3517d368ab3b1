-- due returns after how many whole ms enough leases are over for the weight to fit, read from at
-- most 64 members, and the note of the first holder. A permit that is taken away leaves its note without it.
local function due(weight)
  local rest, last, note = used + weight - limit, now, ''
  local ends = redis.call('ZRANGE', permits, now, 1e14, 'BYSCORE', 'LIMIT', 0, 64, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local part = weigh(ends[i])
    if not part then
      local token, text = string.match(ends[i], '^([^\n]*)\n(.*)$')
      note = note == '' and token and token == ends[i - 2] and text or note
    elseif rest <= 0 then
      break
    else
      rest, last = rest - part, ends[i + 1]
    end
  end
  return math.max(math.floor(last) - now + 1, 1), note
end

-- grant gives permits to the waiters at the head of the queue that fit and are alive, and notifies the first that
-- does not fit when to check. The owner gets its whole ttl, unnotified. It returns the fence of that, if any.
local function grant()
  local granted, tried, mark = 0, 0
  unreachable[string.match(owner, '^[^.]*')] = nil -- it speaks
  for _ = 1, 2000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or tried == 1000 then
      break
    end
    local token, lease, note = string.match(head, '^(%S+) (%d+)\n(.*)$')
    local process = string.match(token or '', '^[^.]*')
    local weight, there = weigh(token or '') or 0, channel .. process
    local mine, sound = token == owner, weight > 0 and #lease <= 13
    if sound and not mine and not unreachable[process] and not subscribed(there) then
      unreachable[process], tried = true, tried + 1
    end
    sound = sound and (mine or not unreachable[process])
    local score = sound and redis.call('ZSCORE', permits, token)
    if sound and (weight > limit or score and tonumber(score) <= 0) then
      notify(there, 'f ' .. token) -- the waiter learns the other limit, or that the permit was released
      tried = tried + 1
    elseif sound and (used + weight > limit and not score or granted == 64) then
      if mine or notify(there, 'n ' .. token .. ' ' .. (due(weight))) then
        notify_beyond(granted, process, (due(weight)))
        break
      end
    elseif sound then
      hold(token, score and 0 or weight, mine and ttl or tonumber(lease), note, not mine)
      local message = 'g ' .. token .. ' ' .. number(fence) .. ' ' .. now_us .. ' ' .. lease .. ' ' .. permits
      if mine or notify(there, message) then
        mark, granted = mine and fence or mark, granted + 1
      else
        unreachable[process], used = true, used - weight
        redis.call('ZADD', permits, number(1e15 + used), 'used', 0, token)
        redis.call('ZREM', permits, token, token .. '\n' .. note)
      end
    end
    redis.call('ZREM', queue, head)
  end
  return mark
end
