--- LockNote changes the note of a lock that is held.
---
---@contract all-or-nothing  one write
---@retry    safe  it sets the same note again
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      note   string  what others are told of the holder from now on
---@reply    bool  whether the owner holds the lock
---@cost     O(1)

local lock = KEYS[1]
local owner, note = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local record = redis.call('GET', lock)
if not record then
  return 0
end
local fence, waiting, holder, start, length, delay, last =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) ')
if holder ~= owner or start / 1000 + length <= now / 1000 then
  return 0
end
redis.call('SET', lock, fence .. ' ' .. waiting .. ' ' .. holder .. ' ' .. start .. ' ' .. length .. ' ' .. delay .. ' ' .. last .. ' ' .. note, 'KEEPTTL')
return 1
