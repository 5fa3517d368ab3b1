--- Quarantine moves an item that its worker cannot run out of the worker's list, to malformed: or
--- to the end of its queue.
---
---@contract all-or-nothing  one write
---@retry    safe  what has moved is not there any more
---@slots    any  the names are those of Redis in Action
---@key      working    list  the item that the worker is at
---@key      malformed  list  where it goes, oldest at the head
---@arg      body       bytes
---@reply    int  1 if it was there
---@cost     O(1)

local working, malformed = KEYS[1], KEYS[2]
local body = ARGV[1]

if redis.call('LINDEX', working, 0) ~= body then
  return 0
end
redis.call('LLEN', malformed) -- a key of another type stops the script here
redis.call('LTRIM', working, 0, -1) -- nothing, but what follows may then use memory over the limit
redis.call('LMOVE', working, malformed, 'LEFT', 'RIGHT')
return 1
