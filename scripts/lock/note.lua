--- Note changes the note of a held lock.
---
--- A copy of a request that arrives late would set an older note again. So a caller that had to repeat its request
--- makes it void afterwards, with leave.lua: a void request changes nothing.
---
---@contract all-or-nothing  one write
---@retry    safe  it sets the same note again, until the request is void
---@key      lock   string  see acquire.lua
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
--< part/read.lua
--< part/void.lua
if is_void(void, request) or holder ~= owner or redis.call('PTTL', lock) <= tonumber(after) then
  return 0
end
--< part/record.lua
tail = ' ' .. holder .. ' ' .. delay .. ' ' .. after .. ' ' .. text
redis.call('SET', lock, lock_record(fence_was, sign, void, tail), 'KEEPTTL')
return 1
