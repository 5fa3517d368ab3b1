-- notify_other notifies the first waiter of another process, within the next 16, to check when the
-- lease is over. In a slot that migrates, a server refuses the queue that hand_over has emptied.
local function notify_other(queue, channel, process, lease)
  for _, entry in ipairs(redis.pcall('LRANGE', queue, 0, 15)) do
    if not string.find(entry, ' ' .. process .. '.', 1, true) then
      local token = string.match(entry, '^%d+ (%S+) ') or ''
      return notify(channel .. string.match(token, '^[^.]*'), 'n ' .. token .. ' ' .. lease)
    end
  end
end

-- hand_over gives the free lock to the first waiter that is alive and not void. It is not alive without
-- a subscriber, nor if it is of the process that is dead. If its process is subscribed at another server
-- of the cluster, as after a move of the slot, or at a replica, it is notified to check: its entry is
-- removed. The owner given needs no notification. It returns the new holder, its lease and its note; nil
-- where no waiter is left, false where too many are dead for one call.
local function hand_over(lock, queue, channel, fence, void, dead, owner, ttl)
  local unreachable, tried = {[dead] = true}, 0
  for n = 1, 10000 do
    local ended = n > 1 and redis.pcall('EXISTS', queue) ~= 1 -- see notify_other
    local entry = not ended and redis.call('LPOP', queue)
    if not entry then
      return nil
    end
    local lease, tail, token, after, note = string.match(entry, '^(%d+)( (%S+) %d+ (%d+) (.*))$')
    local process = string.match(token or '', '^[^.]*')
    if token and token == owner then
      lock_write(lock, fence, 1, void, tail, ttl + after + 1)
      return token, ttl, note
    elseif token and #lease + #after <= 26 and not unreachable[process] and not is_void(void, token) then
      if subscribed(channel .. process) then
        lock_write(lock, fence, 2, void, tail, lease + after + 1)
        local grant = 'g ' .. token .. ' ' .. fence .. ' ' .. now_us .. ' ' .. lease .. ' ' .. lock
        if notify(channel .. process, grant) then
          notify_other(queue, channel, process, lease)
          return token, lease, note
        end
      end
      unreachable[process], tried = true, tried + 1
      notify(channel .. process, 'n ' .. token .. ' 0')
      if tried == 1000 then
        return false
      end
    end
  end
  return false
end
