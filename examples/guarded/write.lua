--- Write sets the text of a page, unless a later holder of its lock has written already.
---@contract all-or-nothing  one write
---@retry    safe  the same text is written again
---@key      page   hash = "page:{$page}"  text, and the fence of its last writer
---@arg      fence  int     min=1  of the writer's lock
---@arg      text   string
---@reply    (written bool, fence int)  the fence of the last writer

local page, fence, text = KEYS[1], ARGV[1], ARGV[2]
local last = tonumber(redis.call('HGET', page, 'fence') or 0)
if tonumber(fence) < last then
  return {0, last}
end
redis.call('HSET', page, 'fence', fence, 'text', text)
return {1, tonumber(fence)}
