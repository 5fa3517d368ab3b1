--- Join announces a node for the length of a lease, and its methods if they are given.
---
--- 1. It writes the lease, the load and the description of the node.
--- 2. It removes nodes whose leases are over, with their methods.
--- 3. It publishes a notice on the node's own channel. A count of 0 receivers means that the
---    subscription is lost.
---
--- A node repeats the call well within the lease. It gives its methods when they change, after its
--- lease had ended, when none are known, and from time to time, because the keys of methods and
--- descriptions expire without that. The script shortens the TTL of no key: the nodes share the
--- keys, and each node has a lease of its own.
---
--- Long because a heartbeat also removes the dead and keeps four keys alive, in one round trip.
---
---@contract dup-only  an error half-way leaves the node announced for some of its methods
---@retry    safe  the same values are set again
---@key      nodes    zset  node, scored by the end of its lease in ms; the fraction is its load
---@key      about    hash  node to its description
---@key      methods  zset  method, NUL, node; all scores are 0
---@key      serves   hash  node, NUL, part: methods, a line each
---@arg      node     string  name of this incarnation of the node
---@arg      lease    ms  min=1  how long the node is announced
---@arg      load     int  min=0 max=999  how busy it is, in thousandths
---@arg      text     string  its description
---@arg      outbox   string  prefix of the nodes' channels
---@arg      notice   bytes  what is published on its own channel
---@arg      shard    bool   sharded pub/sub, in a cluster
---@arg      stay     ms  how long the keys of methods and descriptions stay at least; 0: as long as before
---@arg      part     int  min=0  which part of its methods is given
---@args     name     string  max=500  methods
---@reply    (now time.ms, receivers int, fresh bool, lapsed bool)  receivers: of the notice; fresh: the node is to
---          give its methods: none are known, or some may be gone, as its lease had ended; lapsed: its lease had ended,
---          or was not known
---@cost     O(log n) for each method given, n being the number of nodes

local nodes, about, methods, serves = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, lease, load, text, outbox = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local notice, shard, stay, part = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
if #ARGV > 509 then
  error('name: at most 500')
end
if #node > 1000 then
  error('node: at most 1000 bytes')
end
if not (lease and lease >= 1 and part + 0 >= 0) then
  error('lease must be 1 or more, part must be 0 or more')
end
if not (load and load >= 0 and load <= 999) then
  error('load must be 0 to 999')
end

--< part/now_ms.lua
local now = tonumber(now_ms)

-- A key of the wrong type stops the script here, while nothing is written.
local over = redis.call('ZRANGE', nodes, '-inf', '(' .. now_ms, 'BYSCORE', 'LIMIT', 0, 100)
local known, before = redis.call('HEXISTS', serves, node .. '\0' .. '0'), redis.call('ZSCORE', nodes, node)
-- find.lua has removed methods of a node whose lease had ended.
local lapsed = not before or tonumber(before) <= now
local fresh = known == 0 or lapsed
if stay ~= '0' or #over > 0 then
  redis.call('ZCARD', methods)
end
redis.call('HSET', about, node, text)

-- Each key expires when no node renews it. Nodes with longer leases keep it for as long as they need it.
local function keep(key, ms)
  if redis.call('PEXPIRE', key, ms, 'GT') == 0 then
    redis.call('PEXPIRE', key, ms, 'NX')
  end
end
local score = string.format('%.0f', now + lease) .. string.format('.%03d', load)
redis.call('ZADD', nodes, score, node)
keep(nodes, string.format('%.0f', 2 * lease))
if #ARGV > 9 then
  local members, given = {}, {}
  for i = 10, #ARGV do
    local name = ARGV[i]
    members[2 * i - 19], members[2 * i - 18], given[i - 9] = '0', name .. '\0' .. node, name
  end
  redis.call('ZADD', methods, unpack(members, 1, math.min(1000, #members)))
  redis.call('HSET', serves, node .. '\0' .. part, table.concat(given, '\n'))
end
if stay ~= '0' then
  keep(about, stay)
  keep(methods, stay)
  keep(serves, stay)
end
for _, dead in ipairs(over) do
  if dead ~= node then
    --< part/forget.lua
    redis.call('ZREM', nodes, dead)
    redis.call('HDEL', about, dead)
  end
end
local receivers = redis.call(shard == '1' and 'SPUBLISH' or 'PUBLISH', outbox .. node, notice)
return {now, receivers, fresh and #ARGV == 9 and 1 or 0, lapsed and 1 or 0}
