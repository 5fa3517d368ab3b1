--- Control pauses or resumes a queue and sets its limit, and returns both settings.
---
---@contract dup-only  an error half-way leaves one of the two settings changed
---@retry    safe  the same receipt gives the same answer again, for a minute
---@guard    guard.lua
---@key      control  hash  paused, limit, dead_bytes, dead_limits
---@key      wake     zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      receipt  string  the answer to this call, kept for a repeat
---@arg      pause    enum(keep=0,on=1,off=2)
---@arg      limit    int  min=-1 max=9007199254740991  the most jobs that are ready, scheduled or leased; 0 for no
---          limit, -1 to keep it
---@error    LAYOUT  the queue has a later layout
---@reply    (paused bool, limit int)
---@cost     O(1)

local control, wake, receipt = KEYS[1], KEYS[2], KEYS[3]
local pause, limit = ARGV[1], ARGV[2]
local size = tonumber(limit)
if not (size and size >= -1 and size < 2 ^ 53) then
  error('limit must be -1 to 2^53 - 1')
end

--< part/now_ms.lua
redis.call('ZCARD', wake)
--< part/layout.lua
if limit == '-1' and not tonumber(redis.call('HGET', control, 'limit') or 0) then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
local kept = redis.call('GET', receipt)
if kept then
  local was, most = string.match(kept, '^(%d) (.*)$')
  return {tonumber(was), tonumber(most)}
end

-- A full server refuses a first write that needs memory, and none that follows a write like this one, which changes
-- nothing: a queue can be paused and limited there.
redis.call('HDEL', control, '')
if pause == '1' then
  redis.call('HSET', control, 'paused', '1')
elseif pause == '2' then
  redis.call('HDEL', control, 'paused')
  --< part/wake_next.lua
end
if limit == '0' then
  redis.call('HDEL', control, 'limit')
elseif limit ~= '-1' then
  redis.call('HSET', control, 'limit', limit)
end
local now = redis.call('HMGET', control, 'paused', 'limit')
-- A late copy of this call must not undo one that has come since.
redis.call('SET', receipt, (now[1] and 1 or 0) .. ' ' .. (now[2] or 0), 'PX', 60000)
return {now[1] and 1 or 0, tonumber(now[2] or 0)}
