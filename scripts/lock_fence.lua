--- LockFence raises the fence of a lock that is held, so that several servers agree on one.
---
---@contract all-or-nothing  one write
---@retry    safe  a fence is never lowered
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      least  int  min=0  the fence from now on, unless it is greater
---@reply    bool  whether the owner holds the lock
---@cost     O(1)

local lock = KEYS[1]
local owner, least = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local record = redis.call('GET', lock)
if not record then
  return 0
end
local fence, rest, holder, start, length =
  string.match(record, '^(%d+)( %d (%S+) (%d+) (%d+) .*)$')
if holder ~= owner or start / 1000 + length <= now / 1000 then
  return 0
end
if tonumber(fence) < tonumber(least) then
  redis.call('SET', lock, least .. rest, 'KEEPTTL')
end
return 1
