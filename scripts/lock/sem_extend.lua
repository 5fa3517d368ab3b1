--- SemExtend restarts the lease of a permit.
---
--- It never creates a permit: an expired lease stays expired, even if no other owner has acquired a
--- permit since. It works on a server that is over its memory limit.
---
---@contract dup-only  an error half-way leaves the lease unchanged
---@retry    safe  the owner is compared
---@key      permits  zset  see sem_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the new lease, from now
---@arg      note   string  the note of the owner
---@reply    enum(expired=0, extended=1, revoked=2)  revoked: the permit was taken away by force less than
---          10 s ago
---@cost     O(log n), n being the number of holders

local permits = KEYS[1]
local owner, ttl, note = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not (ttl >= 1) then
  error('ttl must be 1 or more')
end

--< part/now_ms.lua

local score = redis.call('ZSCORE', permits, owner)
if not score or tonumber(score) < tonumber(now_ms) then
  return score and score % 1 == 0.75 and 2 or 0 -- see sem_release.lua
end

--< part/sem_stay.lua
-- The first write needs no memory, see sem_release.lua.
stay(ttl + 60000)
local over = string.format('%.0f', now_ms + ttl)
if note == '' then
  redis.call('ZADD', permits, over, owner)
else
  redis.call('ZADD', permits, over, owner, over, owner .. '\n' .. note)
end
return 1
