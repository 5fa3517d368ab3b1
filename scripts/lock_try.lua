--- LockTry takes a lock for an owner if nobody holds it and nobody waits for it.
---
--- This is the short way for the usual case; see lock_acquire.lua for what the
--- string holds, and for a lock that others wait for.
---
---@contract all-or-nothing  one write
---@retry    safe  an owner that holds the lock is told so
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  a token of this acquire alone
---@arg      ttl    ms  min=1  the lease
---@arg      keep   ms  min=1  how long the string stays
---@arg      delay  ms  min=0  how long the lock rests after a lease that was not released
---@arg      note   string  what others are told of the holder
---@reply    (state enum(held=0, acquired=1, wanted=2), fence int, remaining ms, holder string)  wanted: it is free and others wait; remaining: of the other's lease with its lock delay, or of this owner's where it had the lock before; holder: its note
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl, keep, delay, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- As text: turning numbers into text is what costs most here.
local time = redis.call('TIME')
local micros = time[2]
if #micros < 6 then
  micros = string.sub('00000' .. micros, -6)
end
local now = time[1] .. micros

local record = redis.call('GET', lock)
local fence, last = now, '-'
if record then
  local f = string.sub(record, 1, 16)
  if string.sub(record, 17, 27) == ' 0 - 0 0 0 ' then
    last = string.sub(record, 28, -2) -- free, and nobody waits: no need to take the rest apart
  else
    local waiting, holder, start, length, rest, held
    f, waiting, holder, start, length, rest, last, held =
      string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    local left = start / 1000 + length - now / 1000
    if holder == owner and left > 0 then
      return {1, f, math.max(math.floor(left), 1), ''}
    end
    left = left + rest
    if left > 0 then
      return {0, f, math.ceil(left), held}
    elseif waiting == '1' then
      return {2, f, 0, ''}
    end
  end
  if f >= now then
    fence = string.format('%.0f', f + 1)
  end
end

redis.call('SET', lock, fence .. ' 0 ' .. owner .. ' ' .. now .. ' ' .. ttl .. ' ' .. delay .. ' ' .. last .. ' ' .. note, 'PX', keep)
return {1, fence, 0, ''}
