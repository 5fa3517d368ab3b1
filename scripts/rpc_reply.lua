--- RPCReply accepts the reply to a request, once, and tells those who wait for it.
---
--- It is accepted while the request is pending and comes from the node and the
--- attempt that were asked; all others are refused, and the outcome says why. The
--- reply is stored and announced in one step: a caller that was cut off collects it.
--- Whom to tell stands in the record, never in a message.
---
---@contract dup-only  an error half-way leaves the reply stored, or the request pending
---@retry    safe  a reply that was accepted is a duplicate
---@key      record   string  see rpc_call.lua
---@key      method   zset    node, scored as in rpc_call.lua
---@arg      node     string
---@arg      attempt  int  min=1
---@arg      frame    bytes   the reply as callers read it
---@arg      word     bytes   what is published in its place, if anything: large replies are fetched
---@arg      outbox   string  prefix of the callers' channels
---@arg      keep     ms  min=1  how long callers can collect it
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    enum(gone=0, accepted=1, duplicate=2, stale=3)  gone: the caller has given up; stale:
---          another node or attempt is asked
---@cost     O(log n), n being the number of nodes

local record, method = KEYS[1], KEYS[2]
local node, attempt, frame, word = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outbox, keep, shard = ARGV[5], ARGV[6], ARGV[7]

-- Enough for the longest names of a node and its 16 callers, and not the request.
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
-- The first write tells whether the key is of its type and memory is left.
redis.call('ZADD', method, 'XX', 'INCR', -1, node)
redis.call('SET', record, 'd' .. claim .. frame, 'PX', keep)
local notified = 0
for caller in string.gmatch(callers, '[^\t]+') do
  local channel, message = outbox .. caller, word == '' and frame or word
  --< part/rpc_publish.lua
  -- In a cluster, channels are of a slot.
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
