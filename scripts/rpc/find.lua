--- Find lists the nodes that serve a method, in order of their names, and removes the dead ones from it.
---
---@contract dup-only  an error half-way leaves dead nodes, which the next call removes
---@retry    safe  what is removed stays removed
---@key      nodes    zset    node, scored by the end of its lease in ms; the fraction is its load
---@key      methods  zset    method, NUL, node; all scores are 0
---@arg      method   string
---@arg      after    string?  the last node of the previous page
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    (node string, state enum(dead=0, alive=1, unreachable=2), load int)[]  500 at most; unreachable: without
---          a subscriber, where the caller has one; load: how busy it is, in thousandths
---@cost     O(log n + k) for k nodes of the page

local nodes, methods = KEYS[1], KEYS[2]
local method, after, caller, outbox, shard = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if #outbox + #caller + #method > 1000 then
  error('outbox, caller and method: at most 1000 bytes')
end

--< part/now_ms.lua
local now = tonumber(now_ms)

local head = method .. '\0'
local from = after == '' and '[' .. head or '(' .. head .. after
local members = redis.call('ZRANGE', methods, from, '(' .. method .. '\1', 'BYLEX', 'LIMIT', 0, 500)
redis.call('ZCARD', nodes)
local rows, n, channels, alive, dead, doubtful = {}, 0, {}, {}, {}, #members == 0
for i = 1, #members do
  local node = string.sub(members[i], #head + 1)
  local score = tonumber(redis.call('ZSCORE', nodes, node) or '0')
  rows[n + 1], rows[n + 2], rows[n + 3] = node, 0, 0
  if score > now and score % 1 < 0.9985 then -- see call.lua
    rows[n + 2], rows[n + 3] = 1, math.floor((score - math.floor(score)) * 1000 + 0.5)
    channels[#channels + 1], alive[#alive + 1] = outbox .. node, n + 2
  else
    dead[#dead + 1] = members[i]
  end
  n = n + 3
end
if #channels > 0 then
  local numsub = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB'
  local counts = redis.call('PUBSUB', numsub, unpack(channels, 1, math.min(500, #channels)))
  if shard == '0' or redis.call('PUBSUB', numsub, outbox .. caller)[2] > 0 then
    for i = 1, #alive do
      if counts[2 * i] == 0 then
        rows[alive[i]], doubtful = 2, true
      end
    end
  end
end
if doubtful then
  --< part/primary.lua
end
if #dead > 0 then
  redis.call('ZREM', methods, unpack(dead, 1, math.min(500, #dead)))
end
return rows
