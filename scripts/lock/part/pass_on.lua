-- pass_on hands the lock over, or leaves it free: without a record, unless that has void tokens, the
-- next call has to continue, the caller wants it to stay, or its fence is ahead of the clock: until that has passed
-- it, for a minute at most.
local function pass_on(lock, queue, channel, fence, void, stay)
  local token = hand_over(lock, queue, channel, fence_after(fence, 0), void, '')
  if token then
    return
  end
  local ahead = math.ceil((fence - now_us) / 1000)
  stay = token == false and 60000 or math.max(stay, math.min(ahead, 60000))
  if stay == 0 and not void_lives(void) then
    redis.call('DEL', lock)
  else
    lock_write(lock, fence, token == false and 1 or 0, void, ' - 0 0 ', stay)
  end
end
