-- pass_on hands the lock over, or leaves it free: without a record, unless that has void tokens, the
-- next call has to continue, or the caller wants it to stay.
local function pass_on(lock, queue, channel, fence, void, stay)
  local token = hand_over(lock, queue, channel, fence_after(fence, 0), void, '')
  if token then
    return
  end
  if token == false then
    stay = 60000
  end
  if stay == 0 and not void_lives(void) then
    redis.call('DEL', lock)
  else
    lock_write(lock, fence, token == false and 1 or 0, void, ' - 0 0 ', stay)
  end
end
