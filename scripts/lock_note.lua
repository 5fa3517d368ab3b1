--- LockNote changes the note of a held lock.
---
--- A copy of a request that arrives late would set an older note again. So a caller that had to repeat its request
--- makes it void afterwards, with lock_leave.lua: a void request changes nothing.
---
---@contract all-or-nothing  one write
---@retry    safe  it sets the same note again, until the request is void
---@key      lock   string  see lock_acquire.lua
---@arg      owner  string  the token that acquired
---@arg      text   string  what other callers read about the holder from now on
---@arg      request  string  a token for this request alone
---@reply    bool  whether the owner holds the lock
---@error    LAYOUT  the key holds no lock of this version
---@cost     O(1)

local lock = KEYS[1]
local owner, text, request = ARGV[1], ARGV[2], ARGV[3]
if #text > 1024 then
  error('text: at most 1024 bytes')
end

local record = redis.call('GET', lock)
if not record then
  return 0
end
--< part/lock_read.lua
-- The record of a lock, see lock_acquire.lua: this is its one parser. No lock has a text longer than 4096 bytes.
local fence_was, sign, void, tail, holder, delay, after, note =
  string.match(#record <= 4096 and record or '', '^2 (%d+) ([012]) (%S+)( (%S+) (%d+) (%d+) (.*))$')
if not fence_was or tonumber(fence_was) > 2 ^ 52 or #delay + #after > 26 then
  return redis.error_reply('LAYOUT the key holds no lock of this version')
end
-->
--< part/lock_void.lua
-- is_void reports whether the token is in the list of void tokens: it gets and holds nothing.
local function is_void(void, token)
  return string.find(void .. ',', ',' .. token .. ',', 1, true) ~= nil
end
-->
if is_void(void, request) or holder ~= owner or redis.call('PTTL', lock) <= tonumber(after) then
  return 0
end
--< part/lock_record.lua
-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(fence, sign, void, tail)
  return '2 ' .. fence .. ' ' .. sign .. ' ' .. void .. tail
end
-->
tail = ' ' .. holder .. ' ' .. delay .. ' ' .. after .. ' ' .. text
redis.call('SET', lock, lock_record(fence_was, sign, void, tail), 'KEEPTTL')
return 1
