--- RPCCall sends a request to the least busy node that serves its method, and records it.
---
--- PUBLISH answers with the number of receivers at that instant. So the node is
--- chosen, found alive, given the request and written down in one step, and where
--- nobody is there the caller knows after one round trip.
---
---@contract dup-only  an error half-way leaves a request that is executed and whose reply is kept until it expires
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset  node, scored by the end of its lease in ms
---@key      method   zset  node, scored by its calls in flight
---@key      record   hash  s state (p pending, d done), n node, a attempt, c channel of the caller, f frame of the reply
---@arg      frame    bytes  the request as nodes read it
---@arg      inbox    string  channel of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      timeout  ms  min=1  how long the caller waits
---@reply    (outcome enum(sent=1, known=2, no_method=3, no_lease=4, no_subscriber=5), node string, now time.ms)  known: this call was sent before
---@cost     O(log n + k) for k nodes tried, 64 at most

local nodes, method, record = KEYS[1], KEYS[2], KEYS[3]
local frame, inbox, outbox, timeout = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local time = redis.call('TIME')
local now = tonumber(time[1] .. string.format('%03d', math.floor(time[2] / 1000)))

local known = redis.call('HGET', record, 'n')
if known then
  return {2, known, now}
end

-- A key of the wrong type stops the script here, while nothing is written.
redis.call('ZCARD', nodes)
local candidates = redis.call('ZRANGE', method, 0, 63)

-- Before the request goes out, so that a server without memory refuses it whole.
redis.call('HSET', record, 's', 'p', 'a', '1', 'c', inbox)
local expires = redis.pcall('PEXPIRE', record, string.format('%.0f', timeout + 1000))
if type(expires) == 'table' then
  redis.call('DEL', record)
  error(expires)
end

local reason = 3
for _, node in ipairs(candidates) do
  local lease = redis.call('ZSCORE', nodes, node)
  if not lease or tonumber(lease) <= now then
    redis.call('ZREM', method, node)
    reason = 4
  elseif redis.call('PUBLISH', outbox .. node, frame) > 0 then
    redis.call('HSET', record, 'n', node)
    redis.call('ZINCRBY', method, 1, node)
    return {1, node, now}
  else
    reason = 5
  end
end
redis.call('DEL', record)
return {reason, '', now}
