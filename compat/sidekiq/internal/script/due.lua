--- Due reads the members of a set whose time has come, earliest first.
---
---@readonly
---@retry  safe  it only reads
---@key    set    zset  payloads, scored by due time in float seconds
---@arg    skip   int  min=0  members to pass over
---@arg    max    int  min=1 max=1000  the most members
---@arg    bytes  int  min=1  no more members are read once there are so many bytes
---@reply  (now int, next string?, members bytes[])  now: in us; next: when more are
---        due, the time; else the score of the member after these
---@cost   O(log n + s + k) for k members after s

local set = KEYS[1]
local skip, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.format('%06d', time[2])

-- The size of a member is not known before it is read. So the first is read alone, and then as
-- many as fit by the mean so far, at most three times as many as are there: large ones are not
-- read to be thrown away.
local members, n, size, ask, more = {}, 0, 0, 1, false
while ask >= 1 do
  local some = redis.call('ZRANGE', set, '-inf', now, 'BYSCORE', 'LIMIT', string.format('%.0f', skip + n), ask)
  for _, member in ipairs(some) do
    if size < bytes then
      n = n + 1
      members[n] = member
      size = size + #member
    end
  end
  more = #some == ask
  if not more then
    break
  end
  ask = math.floor(math.min(3 * n, max - n, (bytes - size) * n / math.max(size, 1)))
end

-- The score of a member comes with the member, which may be large: it is read only where it
-- says when to poll next.
if more and redis.call('ZCOUNT', set, '-inf', now) > skip + n then
  return {time[1] * 1000000 + time[2], now, members}
end
local index = string.format('%.0f', skip + n)
local after = redis.call('ZRANGE', set, index, index, 'WITHSCORES')
return {time[1] * 1000000 + time[2], after[2] or false, members}
