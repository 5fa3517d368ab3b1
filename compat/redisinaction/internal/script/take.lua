--- Take moves the first item of the first queue that has one to the list of a worker, and returns it.
---
--- While the worker's list holds an item, it is that one again: its reply was lost,
--- or the worker ended in the middle of it. A queue that the server refuses, because its key
--- has another type, is an error only when no other has an item.
---
---@contract all-or-nothing  one write
---@retry    safe  the item stays in the worker's list and comes again
---@slots    any  the names are those of Redis in Action
---@key      working  list  the item that the worker is at
---@keys     queue    list  max=100  items, oldest at the head
---@reply    (body bytes, from int)?  from: the number of the queue, from 1; 0 if the worker had the item
---@cost     O(q) for q queues

local working = KEYS[1]
if #KEYS > 101 then
  error('queue: at most 100')
end

local body = redis.call('LINDEX', working, 0)
if body then
  return {body, 0}
end
-- The list is empty, so LREM removes nothing. After this write the next may use memory on a server over its limit,
-- so that a queue can be emptied there. A user that may not remove an item gets the error before the item runs.
redis.call('LREM', working, 1, '')
local refused
for i = 2, #KEYS do
  local queue = KEYS[i]
  local first = redis.pcall('LMOVE', queue, working, 'LEFT', 'RIGHT')
  if type(first) == 'table' then
    refused = first
  elseif first then
    return {first, i - 1}
  end
end
if refused then
  error(refused)
end
return false
