-- What was taken without a reply, and is still leased to that call. It goes back to the head of ready, to be
-- taken again below; a copy of the last call leaves it where it is.
if newest <= number and last >= since then
  local old_fence, list = string.match(taken, '^%d+ (%d+)\n(.*)$')
  local back, n = {}, 0
  for entry in string.gmatch(list or '', '[^\n]+') do
    local id = string.match(entry, '^%d+:(.*)$') or ''
    local score = redis.call('ZSCORE', leases, id)
    -- One that was cancelled since stays leased: the end of its lease deletes it.
    local cancelled = score and redis.call('HGET', failures, id) == 'x'
    if score and tonumber(score) == tonumber(old_fence) and not cancelled then
      n = n + 1
      back[n] = entry
    elseif copied then
      gone = gone + 1
    end
  end
  if copied then
    copied, fence = back, old_fence or fence
  else
    for i = n, 1, -1 do
      redis.call('LPUSH', ready, back[i])
      redis.call('ZREM', leases, string.match(back[i], '^%d+:(.*)$'))
    end
  end
end
