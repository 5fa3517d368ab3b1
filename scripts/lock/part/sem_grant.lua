-- grant gives permits to the waiters at the head of the queue that fit and are alive, and notifies the first that
-- does not fit when to check. The owner gets its whole ttl, unnotified. It returns the fence of that, if any.
local function grant()
  local granted, tried, mark = 0, 0
  unreachable[string.match(owner, '^[^.]*')] = nil -- it speaks
  for n = 1, 2000 do
    -- In a slot that migrates, a server refuses the queue that is empty by now.
    local head = (n == 1 and redis.call('ZRANGE', queue, 0, 0) or redis.pcall('ZRANGE', queue, 0, 0))[1]
    if not head or tried == 1000 then
      break
    end
    local token, lease, note = string.match(head, '^(%S+) (%d+)\n(.*)$')
    local process = string.match(token or '', '^[^.]*')
    local mine, weight, there = token == owner, weigh(token or '') or 0, channel .. process
    local sound = weight > 0 and #lease <= 13
    if sound and not mine and not unreachable[process] and not subscribed(there) then
      unreachable[process], tried = true, tried + 1
      notify(there, 'n ' .. token .. ' 0') -- it may be subscribed at another server, as after a move of the slot
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
