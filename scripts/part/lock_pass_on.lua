-- pass_on hands the lock over, or leaves it free: without a record, unless that has void tokens, the
-- next call has to continue, or the caller wants it to stay.
local function pass_on(lock, queue, channel, fence, void, stay)
  local token = hand_over(lock, queue, channel, fence_after(fence, 0), void, '')
  if token then
    return
  end
  if void_lives(void) then
    stay = math.max(stay, 10000)
  end
  if token == false then
    stay = 60000
  end
  if stay == 0 then
    redis.call('DEL', lock)
  else
    redis.call('SET', lock, lock_record(fence, token == false and 1 or 0, void, ' - 0 0 '), 'PX', stay)
  end
end
