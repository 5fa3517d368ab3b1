--- RPCDirect sends a request to one node, named or found as the owner of a connection.
---
--- It does what rpc_call.lua does, without a choice.
---
---@contract dup-only  a request that cannot be published leaves no record
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset    node, scored by the end of its lease in ms
---@key      method   zset    node, scored as in rpc_call.lua
---@key      record   string  see rpc_call.lua
---@keys     binding  string  max=1  the node that owns the connection; none when the node is named
---@arg      frame    bytes   the request as nodes read it
---@arg      word     bytes   what is published in its place, if anything
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a good lease suffices: the slot has just moved, and not all
---          who listen have followed
---@arg      target   string?  the node
---@reply    (outcome enum(sent=1, known=2, no_method=3, no_lease=4, no_subscriber=5, overloaded=6,
---          no_connection=7), node string)
---@cost     O(log n)

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local frame, word, caller, outbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, keep, shard, trust, target = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- As in rpc_call.lua.
local function listens(node)
  if trust == '1' then
    return true
  elseif shard == '0' then
    return redis.call('PUBSUB', 'NUMSUB', outbox .. node)[2] > 0
  end
  return redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. node)[2] > 0 or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] == 0
end

local node, reason = target, 1
for i = 4, #KEYS do
  node = redis.call('GET', KEYS[i]) or ''
end
local lease = redis.call('ZSCORE', nodes, node)
local load = tonumber(redis.call('ZSCORE', method, node) or '')
if node == '' then
  reason = 7
elseif not lease or tonumber(lease) <= now then
  reason = 4
elseif not load then
  reason = 3
elseif load >= 0 and load < 500000 then
  reason = 6
elseif not listens(node) then
  reason = 5
end
if reason > 1 then
  -- A repeat of a call that was sent is not told that nobody has it: it may have taken
  -- the last room itself.
  local head = redis.call('GETRANGE', record, 0, 255)
  if head ~= '' then
    return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
  end
  return {reason, node}
end
local value = 'p1 ' .. node .. '\n' .. caller .. '\n' .. frame
if redis.call('SET', record, value, 'PX', keep, 'NX', 'GET') then
  return {2, node}
end
local added = redis.pcall('ZINCRBY', method, 1, node)
local told = added
if type(added) ~= 'table' then
  local text = word == '' and '1 ' .. timeout .. '\n' .. frame or word
  if shard == '1' then
    told = redis.pcall('SPUBLISH', outbox .. node, text)
  else
    told = redis.pcall('PUBLISH', outbox .. node, text)
  end
end
if type(told) == 'table' then
  redis.call('DEL', record)
  if told ~= added then
    redis.call('ZINCRBY', method, -1, node)
  end
  error(told)
end
return {1, node}
