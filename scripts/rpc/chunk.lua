--- Chunk stores one part of a streaming reply under its number and notifies the callers.
---
--- A late copy of a part that the caller has read does nothing.
---
---@contract dup-only  an error half-way leaves the part stored and the callers not notified; a caller reads it later
---@retry    safe  the same part is stored again
---@key      record   string  see call.lua
---@key      chunks   hash    parts by their number; 0: the number of the last part that the caller has read
---@arg      node     string
---@arg      attempt  int  min=1
---@arg      seq      int  min=1  number of the part
---@arg      frame    bytes   the part as callers read it
---@arg      notice   bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      outbox   string  prefix of the callers' channels
---@arg      keep     ms  min=1  how long the parts stay
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    enum(missing=0, accepted=1, stale=3)  missing: no record, or cancelled; stale: the request belongs to
---          another node or attempt
---@cost     O(1)

local record, chunks = KEYS[1], KEYS[2]
local node, attempt, seq, frame = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local notice, outbox, keep, shard = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if not (keep + 0 >= 1) then
  error('keep must be 1 or more')
end
local number = tonumber(seq)
if not (number and number >= 1) then
  error('seq must be 1 or more')
end

--< part/head.lua
if type(head) == 'table' then
  error(head)
end
-- A key of the wrong type stops the script here.
local read = redis.call('HGET', chunks, '0')
local claim = 'p' .. attempt .. ' ' .. node .. '\n'
if head == '' or string.sub(head, 1, 1) == 'x' then
  return 0
end
if string.sub(head, 1, #claim) ~= claim then
  return 3
end
if number <= (tonumber(read or '0') or 0) then
  return 1
end
local from = string.find(head, '\t', #claim + 1, true) + 1
local callers = string.sub(head, from, string.find(head, '\n', from, true) - 1)
redis.call('HSET', chunks, seq, frame)
redis.call('PEXPIRE', chunks, keep)
local notified = 0
for caller in string.gmatch(callers, '[^\t]+') do
  local channel, message = outbox .. caller, notice == '' and frame or notice
  --< part/publish.lua
  notified = notified + 1
  if notified == 400 then -- call.lua adds no more
    break
  end
end
return 1
