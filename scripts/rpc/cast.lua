--- Cast sends a request without a reply to one node or to all nodes that serve its method.
---
---@contract dup-only  an error half-way leaves some nodes without the request
---@retry    never  a node that received the request would run it again
---@key      nodes    zset    node, scored by the end of its lease in ms; the fraction is its load
---@key      methods  zset    method, NUL, node; all scores are 0
---@arg      method   string
---@arg      after    string?  the last node of the previous page
---@arg      start    int  min=0  for one node: where the search begins
---@arg      frame    bytes   the request as nodes read it
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long a handler may take
---@arg      all      bool    whether all nodes get it
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    (sent int, reason enum(sent=1, no_method=3, no_lease=4, no_subscriber=5), last string?)  sent: the number
---          of nodes that were subscribed; last: of a page of 500 nodes, after which there may be more
---@cost     O(log n + k) for k nodes, 500 at most

local nodes, methods = KEYS[1], KEYS[2]
local method, after, start, frame, outbox = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local timeout, all, shard = ARGV[6], ARGV[7], ARGV[8]
if #outbox + #method > 1000 then
  error('outbox and method: at most 1000 bytes')
end

--< part/now_ms.lua
local now = tonumber(now_ms)

local head = method .. '\0'
local from = after == '' and '[' .. head or '(' .. head .. after
local numsub = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB'
redis.call('ZCARD', nodes)
local found = redis.call('ZRANGE', methods, from, '(' .. method .. '\1', 'BYLEX', 'LIMIT', 0, 500)
local sent, reason = 0, 3
local message = '0 ' .. timeout .. ' ' .. #frame .. '\n' .. frame
for i = 0, #found - 1 do
  local node = string.sub(found[(start + i) % #found + 1], #head + 1)
  local lease = redis.call('ZSCORE', nodes, node)
  if not lease or tonumber(lease) <= now or lease % 1 >= 0.9985 then
    reason = math.max(reason, 4)
  elseif redis.call('PUBSUB', numsub, outbox .. node)[2] == 0 then
    reason = 5 -- see call.lua; no record waits for a node that subscribes later
  else
    local channel = outbox .. node
    --< part/publish.lua
    sent = sent + 1
    if all == '0' then
      return {1, 1, false}
    end
  end
end
if sent == 0 then
  --< part/primary.lua
end
local last = #found == 500 and string.sub(found[500], #head + 1)
return {sent, sent > 0 and 1 or reason, last}
