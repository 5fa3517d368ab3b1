--- SemExtend starts the lease of a permit anew.
---
--- It never creates a permit: a lease that has ended stays ended, even when nobody
--- took its place since. It works on a server that is over its memory limit.
---
---@contract dup-only  an error half-way leaves the lease as it was
---@retry    safe  the owner is compared
---@key      permits  zset  see sem_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the lease from now on
---@arg      note   string  the note of the owner
---@reply    enum(expired=0, extended=1)
---@cost     O(log n), n being the number of holders

local permits = KEYS[1]
local owner, ttl, note = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local score = redis.call('ZSCORE', permits, owner)
if not score or tonumber(score) <= now then
  return 0
end

-- stay keeps the permits for a minute longer than a lease, and never less than
-- before.
local function stay(lease)
  if redis.call('PEXPIRE', permits, lease + 60000, 'GT') == 0 then
    redis.call('PEXPIRE', permits, lease + 60000, 'NX')
  end
end

-- First: a write that needs no memory, see sem_release.lua.
stay(ttl)
if note == '' then
  redis.call('ZADD', permits, now + ttl, owner)
else
  redis.call('ZADD', permits, now + ttl, owner, now + ttl, owner .. '\n' .. note)
end
return 1
