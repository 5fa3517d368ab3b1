-- A waiter has to check again when there is work, or when the next job is due earlier than
-- the waiters know.
if soonest and waiting and e == 0 then
  local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
  waiting = not head[1] or soonest < tonumber(head[2])
end
