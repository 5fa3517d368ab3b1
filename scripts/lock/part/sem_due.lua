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
