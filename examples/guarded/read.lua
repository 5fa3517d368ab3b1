--- Read returns the text of a page to a holder of its lock, and gives the page to this holder.
---
--- From then on each former holder is refused, even if this one has not written yet. Otherwise a late write could come
--- between the read and the write of this holder, which would then undo it.
---
---@contract all-or-nothing  one write
---@retry    safe  the page is this holder's already
---@key      page   hash = "page:{$page}"  see write.lua
---@arg      fence  int     min=1  of the reader's lock
---@reply    (read bool, fence int, text string)  the fence of the last holder; no text for a former one
---@cost     O(1)

local page, fence = KEYS[1], ARGV[1]
local last = redis.call('HMGET', page, 'fence', 'text')
local by = tonumber(last[1] or 0)
if tonumber(fence) < by then
  return {0, by, ''}
end
if tonumber(fence) > by then
  redis.call('HSET', page, 'fence', fence, 'n', 0)
end
return {1, tonumber(fence), last[2] or ''}
