--- Cancel cancels a request: its node is notified, and its reply is refused.
---
--- A mark stays, so that a request that arrives later does not run. The mark has the result, for a
--- repeat.
---
---@contract dup-only  an error half-way leaves the request cancelled and its node not notified
---@retry    safe  a repeat finds the mark and returns its result
---@key      record  string  see call.lua
---@arg      outbox  string  prefix of the nodes' channels
---@arg      notice  bytes   what is published to the node
---@arg      mark    ms  min=1  how long a request that arrives later is refused
---@arg      shard   bool    sharded pub/sub, in a cluster
---@arg      absent  bool    only where no node has the request, or has run it
---@reply    enum(missing=0, cancelled=1, done=2)  missing: no record, or refused by its node;
---          done: it has ended, and its unread reply is deleted; with absent, these two are not changed
---@error    LAYOUT  the key holds no call of this version
---@cost     O(1)

local record = KEYS[1]
local outbox, notice, mark, shard, absent = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local head = redis.call('GETRANGE', record, 0, 255)
local kind = string.sub(head, 1, 1)
local node = string.match(head, '^p%d+ ([^\n]*)\n')
if head ~= '' and not node and not string.find('drlx', kind, 1, true) then
  return redis.error_reply('LAYOUT the key holds no call of this version')
end
local result = node and 1 or (kind == 'd' or kind == 'l') and 2 or kind == 'x' and tonumber(string.sub(head, 2)) or 0
if absent == '1' and result > 0 then
  return result
end
redis.call('SET', record, 'x' .. result, 'PX', mark)
if not node then
  return result
end
local channel, message = outbox .. node, notice
--< part/publish.lua
return 1
