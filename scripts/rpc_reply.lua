--- RPCReply accepts the reply to a request, once, and notifies the callers that wait for it.
---
--- It accepts the reply while the request is pending with this node and this attempt. It refuses any other reply, and
--- the result says why. The reply is stored and published in one step: a caller that was disconnected reads it later.
--- The callers are those of the record; no message names them.
---
---@contract dup-only  an error half-way leaves the reply stored, or the request pending
---@retry    safe  an accepted reply is a duplicate
---@key      record   string  see rpc_call.lua
---@key      method   zset    node, scored as in rpc_call.lua
---@arg      node     string
---@arg      attempt  int  min=1
---@arg      frame    bytes   the reply as callers read it
---@arg      notice   bytes   what is published instead of the frame, which is then fetched; empty for the frame
---@arg      outbox   string  prefix of the callers' channels
---@arg      keep     ms  min=1  how long callers can read it
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    enum(missing=0, accepted=1, duplicate=2, stale=3)  missing: the request is cancelled or expired;
---          stale: it belongs to another node or attempt, or is lost
---@cost     O(log n), n being the number of nodes

local record, method = KEYS[1], KEYS[2]
local node, attempt, frame, notice = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outbox, keep, shard = ARGV[5], ARGV[6], ARGV[7]

-- The longest names of a node and its 16 callers fit; a large request is not read.
local head = redis.call('GETRANGE', record, 0, 4095)
local state = string.sub(head, 1, 1)
if state == '' or state == 'x' then
  return 0
end
local claim = attempt .. ' ' .. node .. '\n'
if string.sub(head, 2, #claim + 1) ~= claim or state == 'l' then
  return 3
end
if state ~= 'p' then
  return 2
end

local from = #claim + 2
local callers = string.sub(head, from, string.find(head, '\n', from, true) - 1)
-- The first write fails if the key has another type or the server has no memory.
redis.call('ZADD', method, 'XX', 'INCR', -1, node)
redis.call('SET', record, 'd' .. claim .. frame, 'PX', keep)
local notified = 0
for caller in string.gmatch(callers, '[^\t]+') do
  local channel, message = outbox .. caller, notice == '' and frame or notice
  --< part/rpc_publish.lua
  -- In a cluster, a channel belongs to a slot.
  if shard == '1' then
    redis.call('SPUBLISH', channel, message)
  else
    redis.call('PUBLISH', channel, message)
  end
  -->
  notified = notified + 1
  if notified == 16 then -- rpc_attach.lua adds no more
    break
  end
end
return 1
