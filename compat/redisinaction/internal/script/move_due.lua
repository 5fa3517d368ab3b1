--- MoveDue moves delayed items to the ends of lists, those that still have the score they were read with.
---
--- An item that has another score was put off meanwhile, one without a score was
--- moved by another poller: both are passed over. A list that cannot take items keeps
--- its own waiting and no others.
---
---@contract dup-only  an error half-way can move an item twice, never lose one
---@retry    safe  what has moved is not there any more
---@slots    any  the names are those of Redis in Action
---@key      delayed  zset  items, scored by due time in s
---@keys     list     list  max=500  where items go, oldest at the head
---@args     item     (to int, score string, body bytes)  max=500 bytes=536870912  to: the number of the
---          list, from 1; score: as due.lua returns it
---@reply    int[]  how many went to each list; -1 for a list that takes none
---@cost     O(log n) for each item

local delayed = KEYS[1]
if #KEYS > 501 then
  error('list: at most 500')
end
if #ARGV > 1500 then
  error('item: at most 500')
end

local bodies, scores, places = {}, {}, {}
for i = 1, #ARGV, 3 do
  local to, score, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local n = #bodies + 1
  bodies[n], scores[n], places[n] = body, score, to
end
local found = redis.call('ZMSCORE', delayed, unpack(bodies, 1, math.min(#bodies, 500)))

-- A score is compared as the text that the server made of it, and a place is a text too: to make
-- numbers of them takes longer.
local lists = {}
for i = 1, #bodies do
  if found[i] == scores[i] then
    local items = lists[places[i]] or {}
    lists[places[i]] = items
    items[#items + 1] = bodies[i]
  end
end

-- Nothing is removed. But a user who may not remove gets the error here, before anything is
-- added; and a server over its memory limit lets the rest pass.
if not redis.call('ZSCORE', delayed, '') then
  redis.call('ZREM', delayed, '')
end

local moved, gone, counts = 0, {}, {}
for at = 2, #KEYS do
  local list, items = KEYS[at], lists[tostring(at - 1)]
  counts[at - 1] = 0
  if items then
    local done = redis.pcall('RPUSH', list, unpack(items, 1, math.min(#items, 500)))
    if type(done) == 'table' then
      counts[at - 1] = -1
    else
      counts[at - 1] = #items
      for i = 1, #items do
        moved = moved + 1
        gone[moved] = items[i]
      end
    end
  end
end
if moved > 0 then
  redis.call('ZREM', delayed, unpack(gone, 1, math.min(moved, 500)))
end
return counts
