--- Quarantine moves members that are no jobs out of a set, with their scores, so that they
--- are not in the way and nothing is thrown away.
---
---@contract dup-only  an error half-way can leave a member in both sets
---@retry    safe  what has moved is not in the set any more
---@slots    any  the keys are Sidekiq's, which have no tag
---@key      set         zset  payloads, scored by due time in float seconds
---@key      quarantine  zset  what could not be read, with the scores it had
---@args     member      bytes  max=1000 bytes=536870912
---@reply    int         how many were moved
---@cost     O(k log n) for k members

local set, quarantine = KEYS[1], KEYS[2]
if #ARGV > 1000 then
  error('member: at most 1000')
end

local scores = redis.call('ZMSCORE', set, unpack(ARGV, 1))
local moved = 0
-- A user that may add a member but not remove it would leave it in both sets. So the script tries to remove first.
-- After that write, the others may use memory on a server over its limit.
if not redis.call('ZSCORE', set, '') then
  redis.call('ZREM', set, '')
end
for i = 1, #ARGV do
  local member = ARGV[i]
  if scores[i] then
    redis.call('ZADD', quarantine, scores[i], member)
    redis.call('ZREM', set, member)
    moved = moved + 1
  end
end
return moved
