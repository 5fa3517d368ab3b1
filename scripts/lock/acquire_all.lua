--- AcquireAll acquires several locks of one slot for one owner, all of them or none.
---
--- It acquires a free lock even if the lock has waiters: an owner of several locks holds none of them while it waits.
--- See acquire.lua for the record.
---
---@contract dup-only  an error half-way leaves some locks with this owner, and its repeat keeps them
---@retry    safe  an owner keeps the locks that it holds
---@keys     lock  string  max=100  see acquire.lua
---@arg      own    string  the record from the owner on, with a space before it
---@arg      life   ms  min=2  the lease, the afterlife and 1 ms
---@arg      floor  int  min=0 max=4503599627370495  the fences are greater
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that
---          another holds, counted from 1, or 0; remaining, holder: of that lock
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1) for each lock

local own, life, floor = ARGV[1], ARGV[2], ARGV[3]
if not (life + 0 >= 2) then
  error('life must be 2 or more')
end
--< part/floor.lua
if #KEYS > 100 then
  error('lock: at most 100')
end
if #own > 2000 then
  error('own: at most 2000 bytes')
end
local owner = string.match(own, '^ (%S+) ')

--< part/now_us.lua
--< part/fence_after.lua
--< part/void.lua
local fences, rows = {}, {}
for i, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock) or '2 0 0 - - 0 0 '
  --< part/read.lua
  local left = redis.call('PTTL', lock) - after
  rows[i] = {sign == '0' and 0 or 1, void}
  if holder == owner and left > 0 then
    fences[i] = fence_was
  elseif holder ~= '-' and left + delay > 0 or is_void(void, owner) then
    return {i, math.max(left + delay, 1), note, {}}
  else
    fences[i] = fence_after(fence_was, floor)
  end
end

--< part/record.lua
--< part/write.lua
for i, lock in ipairs(KEYS) do
  lock_write(lock, fences[i], rows[i][1], rows[i][2], own, life)
end
return {0, 0, '', fences}
