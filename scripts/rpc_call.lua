--- RPCCall sends a request to the least busy node that serves its method, and records it.
---
--- The server knows who listens at that instant. So the node is chosen, found alive,
--- given the request and written down in one step, and where nobody is there the caller
--- knows after one round trip. It is asked before, and not by what PUBLISH answers: whoever
--- listens at a replica hears what is published here, is not counted, and must not run
--- what went to another.
---
--- In a cluster the channels are of the slot, and its owner knows all who listen. While
--- the slot moves they are elsewhere. There the caller does not listen either, so its
--- lease is all that is asked of a node: it finds the request when it has followed.
---
--- What nodes read is the attempt, what is left of the time in ms, and the frame:
--- '1 5000', a line feed, the frame.
---
---@contract dup-only  a request that cannot be published leaves no record; nodes found dead or deaf stay marked so
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored by its calls in flight less what it can run at once;
---          1000000 more when it did not hear
---@key      record   string  state (p pending, d done, l lost, x given up), attempt, space, node,
---          line feed; pending: callers, line feed, request; done: reply
---@keys     discard  string  max=200  records that the caller is done with
---@arg      frame    bytes   the request as nodes read it
---@arg      word     bytes   what is published in its place, if anything: large requests are fetched
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a good lease suffices: the slot has just moved, and not all
---          who listen have followed
---@reply    (outcome enum(sent=1, known=2, no_method=3, no_lease=4, no_subscriber=5, overloaded=6),
---          node string)  known: this call was sent before
---@cost     O(log n + k) for k nodes tried, 64 at most

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local frame, word, caller, outbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, keep, shard, trust = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if #KEYS > 203 then
  error('discard: at most 200')
end
if #outbox + #caller > 1000 then
  error('outbox and caller: at most 1000 bytes')
end

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

local numsub = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB'
local reason = 3
for from = 0, 56, 8 do
  local candidates = redis.call('ZRANGE', method, from, from + 7, 'WITHSCORES')
  for i = 1, #candidates, 2 do
    local node, load = candidates[i], tonumber(candidates[i + 1])
    local lease = redis.call('ZSCORE', nodes, node)
    if not lease or tonumber(lease) <= now then
      redis.call('ZREM', method, node)
      reason = math.max(reason, 4)
    elseif load >= 0 and load < 500000 then
      reason = 6
    elseif trust == '0' and redis.call('PUBSUB', numsub, outbox .. node)[2] == 0
      and (shard == '0' or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] > 0) then
      if load < 500000 then
        redis.call('STRLEN', record) -- of another type it fails before anything is marked
        redis.call('ZADD', method, load + 1000000, node) -- asked after all others until it reports again
      end
      reason = 5
    else
      -- Written first, so that a server without memory refuses it whole, and a reply
      -- finds it.
      local known = redis.call('SET', record, 'p1 ' .. node .. '\n' .. caller .. '\n' .. frame, 'PX', keep, 'NX', 'GET')
      if known then
        return {2, string.match(known, '^%a%d+ ([^\n]*)') or ''}
      end
      --< part/rpc_send.lua
      -- The node has the request in its load before it is published. A request that cannot be
      -- published leaves no record.
      local added = redis.pcall('ZINCRBY', method, 1, node)
      local sent = added
      if type(added) ~= 'table' then
        local message = word == '' and '1 ' .. timeout .. '\n' .. frame or word
        if shard == '1' then
          sent = redis.pcall('SPUBLISH', outbox .. node, message)
        else
          sent = redis.pcall('PUBLISH', outbox .. node, message)
        end
      end
      if type(sent) == 'table' then
        redis.call('DEL', record)
        if type(added) ~= 'table' then
          redis.call('ZINCRBY', method, -1, node)
        end
        error(sent)
      end
      -->
      for j = 4, #KEYS do
        if type(redis.pcall('UNLINK', KEYS[j])) == 'table' then
          break -- what stays expires
        end
      end
      return {1, node}
    end
  end
  if #candidates < 16 then
    break
  end
end

--< part/rpc_known.lua
-- A repeat of a call that was sent does not hear that nobody has it: it may have taken the
-- last room itself.
local head = redis.call('GETRANGE', record, 0, 255)
if head ~= '' then
  return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
end
-->
return {reason, ''}
