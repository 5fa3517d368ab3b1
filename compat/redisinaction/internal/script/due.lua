--- Due reads the delayed items that are due, earliest first, and what is known of the others.
---
---@readonly
---@retry  safe
---@slots  any  the names are those of Redis in Action
---@key    delayed  zset  items, scored by due time in s
---@arg    skip   int  min=0  how many due items to pass over
---@arg    max    int  min=1 max=1000  the most items to read
---@arg    bytes  int  min=1  no more items once they have so many bytes
---@reply  (now int, next float?, foreign int, items (body bytes, score string)[])  now in us; next:
---        when nothing is due, the time of the first item; foreign: items with a score that is no time in s
---@cost   O(log n + skip + k) for k items read

local delayed = KEYS[1]
local skip, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.sub('00000' .. time[2], -6)

-- The size of an item is not known before it is read. So the first is read alone, and then as
-- many as fit by the mean so far, at most three times as many as are there: large ones are not
-- read to be thrown away.
local items, n, size, ask = {}, 0, 0, 1
while ask >= 1 do
  local from = string.format('%.0f', skip + n)
  local some = redis.call('ZRANGE', delayed, '-inf', now, 'BYSCORE', 'LIMIT', from, ask, 'WITHSCORES')
  for i = 1, #some, 2 do
    if size < bytes then
      items[2 * n + 1], items[2 * n + 2] = some[i], some[i + 1]
      n = n + 1
      size = size + #some[i]
    end
  end
  if #some < 2 * ask then
    break
  end
  ask = math.floor(math.min(3 * n, max - n, (bytes - size) * n / math.max(size, 1)))
end

-- The score of an item comes with the item, which may be large: it is read where nothing is due.
local later = {}
if n == 0 then
  later = redis.call('ZRANGE', delayed, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
end
local foreign = redis.call('ZCOUNT', delayed, '(100000000000', '+inf')
return {tonumber(time[1] .. string.sub('00000' .. time[2], -6)), later[2] or false, foreign, items}
