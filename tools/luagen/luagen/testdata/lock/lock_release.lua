--- LockRelease gives a lock back, if owner still holds it.
--- What was stored under the lock stays.
---
--- A second paragraph, with an example:
---
---     LockRelease(ctx, client, params)
---
---@contract all-or-nothing  only the owner's lock is removed
---@retry    safe            a second release finds nothing
---@key      lock  hash = "lock:{$name}"  o owner, f fence
---@key      fence string = "lock:{$name}:fence"
---@arg      owner  string
---@reply    (state enum(free=0, held=1, lost=5), fence uint)
---@error    STALE_OWNER  somebody else holds the lock
---@cost     O(1)

local lock, fence = KEYS[1], KEYS[2]
local owner = ARGV[1]

local held = redis.call('HGET', lock, 'o')
if held and held ~= owner then
  return redis.error_reply('STALE_OWNER of ' .. owner)
end
local last = redis.call('GET', fence) or 0
return {redis.call('DEL', lock), last}
