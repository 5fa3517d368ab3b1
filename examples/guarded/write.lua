--- Write sets the text of a page, unless a later holder of its lock has read or written it, or this one has written
--- since.
---
--- A copy of a call can be late: its repeat was answered, and the holder has gone on. Under one fence the writes
--- have numbers, so it is refused.
---
---@contract all-or-nothing  one write
---@retry    safe  the same text is written again
---@key      page   hash = "page:{$page}"  text; the fence of its last holder, and the number of its last write
---@arg      fence  int     min=1  of the writer's lock
---@arg      n      int     min=1  of the write, among those of this fence
---@arg      text   string
---@reply    (written bool, fence int)  the fence of the last holder

local page, fence, n, text = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local last = redis.call('HMGET', page, 'fence', 'n')
local by, write = tonumber(last[1] or 0), tonumber(last[2] or 0)
if tonumber(fence) < by or tonumber(fence) == by and tonumber(n) < write then
  return {0, by}
end
redis.call('HSET', page, 'fence', fence, 'n', n, 'text', text)
return {1, tonumber(fence)}
