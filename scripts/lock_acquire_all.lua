--- LockAcquireAll takes several locks of one slot for one owner, all of them or none.
---
--- It takes a free lock although others wait for it: those who take several at once
--- hold nothing while they wait. See lock_acquire.lua for what a string holds.
---
---@contract dup-only  an error half-way leaves some locks with this owner, whose repeat finds them its own
---@retry    safe  an owner keeps what it holds
---@keys     lock  string  see lock_acquire.lua
---@arg      owner  string  a token of this acquire alone
---@arg      ttl    ms  min=1  the lease
---@arg      delay  ms  min=0  how long a lock rests after a lease that was not released
---@arg      note   string  what others are told of the holder
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that another holds, counted from 1, or 0; remaining, holder: of that one
---@cost     O(1) for each lock

local owner, ttl, delay, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local fences, signs = {}, {}
for i, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock)
  fences[i], signs[i] = now, {'0', '-'}
  if record then
    local f, w, holder, start, length, rest, released, held =
      string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    local left = start / 1000 + length - now / 1000
    signs[i] = {w, released}
    if holder == owner and left > 0 then
      fences[i] = f
    else
      left = left + rest
      if left > 0 then
        return {i, math.ceil(left), held, {}}
      end
      if f >= now then
        fences[i] = string.format('%.0f', f + 1)
      end
    end
  end
end

for i, lock in ipairs(KEYS) do
  redis.call('SET', lock, fences[i] .. ' ' .. signs[i][1] .. ' ' .. owner .. ' ' .. now .. ' ' .. ttl .. ' ' .. delay .. ' ' .. signs[i][2] .. ' ' .. note, 'PX', ttl + 60000)
end
return {0, tonumber(ttl), '', fences}
