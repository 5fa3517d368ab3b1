--- CacheSave writes an item, unless another holds the lock of its key.
---
---@contract all-or-nothing  one write
---@retry    safe  the same value is written again
---@slots    any  the names of both keys are ActionHero's; a key with a {tag} has them in one slot
---@key      lock   string  the name of its holder
---@key      item   string  a JSON object with the value and its times
---@arg      name   string  the holder's
---@arg      value  bytes  JSON, kept as it is
---@arg      ttl    ms  min=0 max=3155760000000  0: it stays
---@arg      stamped  bool  with expireTimestamp and readAt, as ActionHero up to 28 writes it
---@reply    (state enum(locked=0, saved=1), holder string, remaining ms)  remaining: of the lock;
---          -1 where it never ends
---@cost     O(n), n being the length of the value

local lock, item = KEYS[1], KEYS[2]
local name, value, ttl, stamped = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
if not (ttl and ttl >= 0 and ttl <= 3155760000000) then
  error('ttl must be 0 to 3155760000000')
end

local holder = redis.call('GET', lock)
if holder and holder ~= name then
  return {0, holder, redis.call('PTTL', lock)}
end

--< part/now_ms.lua
local times = ',"createdAt":' .. now_ms .. '}'
if stamped then
  local expire = ttl > 0 and string.format('%.0f', now_ms + ttl) or 'null'
  times = ',"expireTimestamp":' .. expire .. ',"createdAt":' .. now_ms .. ',"readAt":null}'
  ttl = math.ceil(ttl / 1000) * 1000
end
local text = '{"value":' .. value .. times
if ttl > 0 then
  redis.call('SET', item, text, 'PXAT', string.format('%.0f', now_ms + ttl))
else
  redis.call('SET', item, text)
end
return {1, '', 0}
