--- LockExtend starts the lease of a held lock anew.
---
--- It never creates a lock: an expired lease stays expired, even if no other owner has acquired the lock since.
--- It works on a server that is over its memory limit.
---
---@contract dup-only  an error half-way leaves the lease unchanged or extended
---@retry    safe  the owner is compared
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      ttl    ms  min=1  the new lease, from now
---@arg      keep   ms  min=1  how long the string stays
---@reply    enum(expired=0, extended=1, taken=2)  taken: another owner holds it or has held it since
---@cost     O(1)

local lock = KEYS[1]
local owner, ttl, keep = ARGV[1], ARGV[2], ARGV[3]

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->

local record = redis.call('GETEX', lock, 'PX', keep) -- see lock_release.lua
if not record then
  return 0
end
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
-->
if holder == owner and start / 1000 + length > now_us / 1000 then
  --< part/lock_record.lua
  -- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
  local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
    return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
      .. ' ' .. releaser .. ' ' .. text
  end
  -->
  redis.call('SET', lock, lock_record(fence_was, waiting, holder, now_us, ttl, rest, last, held), 'KEEPTTL')
  return 1
end
--< part/lock_keep.lua
-- The record belongs to another owner, and stays as long as that owner needs it.
if start ~= '0' then
  redis.call('PEXPIREAT', lock, math.floor(start / 1000) + length + rest + 60000)
end
-->
return holder == owner and 0 or 2
