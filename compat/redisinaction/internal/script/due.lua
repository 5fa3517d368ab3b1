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
---        when the first one is due that is not; foreign: items with a score that is no time in s
---@cost   O(log n + skip + k) for k items read

local delayed = KEYS[1]
local skip, max, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (max and max >= 1 and max <= 1000) then
  error('max must be 1 to 1000')
end

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
local found = redis.call('ZRANGE', delayed, '-inf', now, 'BYSCORE', 'LIMIT', skip, max, 'WITHSCORES')
local items = {}
for i = 1, #found, 2 do
  if bytes <= 0 then
    break
  end
  bytes = bytes - #found[i]
  items[i], items[i + 1] = found[i], found[i + 1]
end

local later = redis.call('ZRANGE', delayed, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
local foreign = redis.call('ZCOUNT', delayed, '(100000000000', '+inf')
return {tonumber(time[1] .. string.sub('00000' .. time[2], -6)), later[2] or false, foreign, items}
