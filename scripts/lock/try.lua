--- Try acquires a lock for an owner if the lock is free and has no waiters.
---
--- This is the short script for the usual case, written for many locks. See acquire.lua for the record, and for
--- a lock with waiters.
---
---@merge    max=64
---@contract all-or-nothing  one write
---@retry    safe  an owner that holds the lock gets its fence
---@key      lock   string  see acquire.lua
---@arg      own    string  the record from the owner on, with a space before it
---@arg      life   ms  min=2  the lease, the afterlife and 1 ms
---@arg      floor  int  min=0 max=4503599627370495  the fence is greater
---@reply    (state enum(held=0, acquired=1, wanted=2), fence int, remaining ms, holder string)
---          wanted: the lock is free and has waiters or void tokens; remaining: of the holder's lease
---          with its lock delay, or of this owner's lease where it held the lock before, 0 for the
---          whole; holder: its note
---@allow    W003 SET NX of a lock that exists writes nothing, and a row before it may be repeated
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1)

--< part/now_us.lua
if #KEYS > 64 then
  error('row: at most 64')
end
local replies = {}
for i, lock in ipairs(KEYS) do
  local own, life, floor = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if not (life + 0 >= 2) then
    error('life must be 2 or more')
  end
  --< part/floor.lua
  local fence = now_us
  if #floor == 16 and floor >= now_us then -- the clock was set back
    fence = string.format('%.0f', floor + 1)
  end
  local state, remaining, holding = 1, 0, ''
  local free = (fence == now_us and ' 0 -' or ' 1 -') .. own
  local record = redis.call('SET', lock, '2 ' .. fence .. free, 'NX', 'GET', 'PX', life)
  if record then
    --< part/read.lua
    local left = redis.call('PTTL', lock) - after
    if left > 0 and string.find(own, ' ' .. holder .. ' ', 1, true) == 1 then
      fence, remaining = fence_was, left
    elseif left + delay > 0 and holder ~= '-' then
      state, fence, remaining, holding = 0, fence_was, left + delay, note
    elseif sign ~= '0' or void ~= '-' then
      state, fence = 2, fence_was
    else
      fence = string.format('%.0f', math.max(fence, fence_was + 1))
      free = (fence == now_us and ' 0 -' or ' 1 -') .. own
      redis.call('SET', lock, '2 ' .. fence .. free, 'PX', life)
    end
  end
  if #KEYS == 1 then
    return {state, fence, remaining, holding} -- without the steps in which a table grows
  end
  local n = 4 * i
  replies[n - 3], replies[n - 2], replies[n - 1], replies[n] = state, fence, remaining, holding
end
return replies
