-- A repeat: what the first call took, and is still leased to it, goes back to the head of ready, to
-- be taken again below.
if taken and string.sub(taken, 1, #token + 1) == token .. ' ' then
  local old_fence, list = string.match(taken, '^%d+ (%d+)\n(.*)$')
  local back, n = {}, 0
  for entry in string.gmatch(list or '', '[^\n]+') do
    local score = redis.call('ZSCORE', leases, string.match(entry, '^%d+:(.*)$') or '')
    -- One that was cancelled since stays leased: the end of its lease deletes it.
    local cancelled = score and redis.call('HGET', failures, string.match(entry, '^%d+:(.*)$')) == 'x'
    if score and tonumber(score) == tonumber(old_fence) and not cancelled then
      n = n + 1
      back[n] = entry
    end
  end
  for i = n, 1, -1 do
    redis.call('LPUSH', ready, back[i])
    redis.call('ZREM', leases, string.match(back[i], '^%d+:(.*)$'))
  end
end
