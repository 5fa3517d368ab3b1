--- Due reads the members of a set whose time has come, earliest first.
---
---@readonly
---@retry  safe  it only reads
---@key    set    zset  payloads, scored by due time in float seconds
---@arg    skip   int  min=0  members to pass over
---@arg    max    int  min=1 max=1000  the most members
---@arg    bytes  int  min=1  no more members are read once there are so many bytes
---@reply  (now int, next string?, members bytes[])  now: in us; next: the score of the member after these, due or not
---@cost   O(log n + s + k) for k members after s

local set = KEYS[1]
local skip, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.format('%06d', time[2])
local members, n, size = {}, 0, 0
while n < max and size < bytes do
  local some = redis.call('ZRANGE', set, '-inf', now, 'BYSCORE', 'LIMIT', skip + n, math.min(100, max - n))
  if #some == 0 then
    break
  end
  for _, member in ipairs(some) do
    if size < bytes then
      n = n + 1
      members[n] = member
      size = size + #member
    end
  end
end
local after = redis.call('ZRANGE', set, skip + n, skip + n, 'WITHSCORES')
return {time[1] * 1000000 + time[2], after[2] or false, members}
