--- CacheLoad reads an item, unless another holds the lock of its key, and notes that it was read.
---
--- An item of ActionHero up to 28 ends with its three times. They are replaced in
--- place, so that the value keeps its bytes. ActionHero itself writes the whole item
--- again, from what it read some round trips before.
---
---@contract all-or-nothing  one write
---@retry    safe  it is read again
---@slots    any  the names of both keys are ActionHero's; a key with a {tag} has them in one slot
---@key      lock    string  the name of its holder
---@key      item    string  see cache_save.lua
---@arg      name    string  the holder's
---@arg      extend  ms  min=0 max=3155760000000  how long the item stays from now on; 0: as long as before
---@reply    (state enum(locked=0, loaded=1, missing=2, expired=3), holder string, remaining ms,
---          item string, expires time.ms?)  item: as it was before; expires: where the item says
---          so; remaining: of the lock, -1 where it never ends
---@cost     O(n), n being the length of the item

local lock, item = KEYS[1], KEYS[2]
local name, extend = ARGV[1], tonumber(ARGV[2])
if not (extend and extend >= 0 and extend <= 3155760000000) then
  error('extend must be 0 to 3155760000000')
end

local holder = redis.call('GET', lock)
if holder and holder ~= name then
  return {0, holder, redis.call('PTTL', lock), '', false}
end
local text = redis.call('GET', item)
if not text then
  return {2, '', 0, '', false}
end

-- The last of its kind in the text is the item's own: nothing but the brace follows.
local tail = string.sub(text, -200)
local times = '()"expireTimestamp":([%w.+-]+),"createdAt":([%w.+-]+),"readAt":[%w.+-]+}$'
local at, expire, created = string.match(tail, times)
if not at then
  if extend > 0 then
    redis.call('PEXPIRE', item, string.format('%.0f', extend))
  end
  return {1, '', 0, text, false}
end

--< part/now_ms.lua
-- A process may save for Number.MAX_VALUE ms; 2^53 ms is the last time that a number holds exactly.
local ends = tonumber(expire)
ends = ends and math.min(ends, 2^53)
if ends and ends < tonumber(now_ms) then
  return {3, '', 0, '', false}
end
local extended = ends and extend > 0
if extended then
  ends = now_ms + extend
  expire = string.format('%.0f', ends)
end
local read = string.sub(text, 1, #text - #tail + at - 1) ..
  '"expireTimestamp":' .. expire .. ',"createdAt":' .. created .. ',"readAt":' .. now_ms .. '}'
if extended then
  redis.call('SET', item, read, 'PXAT', string.format('%.0f', now_ms + math.ceil(extend / 1000) * 1000))
elseif ends and redis.call('PTTL', item) == -1 then
  -- Its end was to be set by a second command, and never was.
  redis.call('SET', item, read, 'PXAT', string.format('%.0f', math.ceil(ends) + 1))
else
  redis.call('SET', item, read, 'KEEPTTL')
end
return {1, '', 0, text, ends and string.format('%.0f', ends) or false}
