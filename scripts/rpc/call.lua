--- Call records requests and publishes them, each for one node that can take it.
---
--- A node can take requests if it has a lease and a subscriber. The script finds the subscriber
--- with PUBSUB NUMSUB, not by the count that PUBLISH returns: a subscriber of a replica receives
--- what is published here and is not counted. It must not run a request that was given to another
--- node.
---
--- A request that arrives after its end does nothing. A request that is recorded, or whose node
--- cannot take it, is left to decide.lua. The requests for one node are one message: for each
--- of them the attempt, the remaining time in ms and the length of the frame, a line feed, the
--- frame.
---
--- Long because one call takes the rows of many callers, and each row is decided by itself.
---
---@contract dup-only  a request that cannot be published is not recorded
---@retry    safe  a request that is recorded is not sent again
---@merge    max=64
---@key      nodes    zset    node, scored by the end of its lease in ms; the fraction is its load, .999: it leaves
---@key      record   string  state (p pending, d done, r refused, l lost; other versions have other letters;
---          x cancelled, and what cancel.lua returned, alone), attempt, space, node, line feed; digest, then a
---          tab and a name for each caller, line feed; request or reply
---@arg      node     string  the one that gets it
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      frame    bytes   the request as nodes read it
---@arg      digest   string  of the body, where other callers may name the record; else empty
---@arg      left     ms  min=1  how long the handler may take
---@arg      ends     int     when the request is over, by the server's clock in ms
---@arg      keep     ms  min=1  how long the record stays
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    enum(undecided=0, sent=1, late=8)
---@cost     O(log n)

if #KEYS > 128 then
  error('row: at most 64')
end

--< part/now_ms.lua
local now = tonumber(now_ms)

local replies, ready, messages, places, channels, sharded, failed = {}, {}, {}, {}, {}, {}, nil
for row = 1, #KEYS / 2 do
  local nodes, record = KEYS[2 * row - 1], KEYS[2 * row]
  local at = 9 * row - 9
  local node, caller, outbox, frame, digest = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local left, ends, keep, shard = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]
  if #outbox + #caller + #digest > 1000 then
    error('outbox, caller and digest: at most 1000 bytes')
  end

  local channel = outbox .. node
  local takes, reply = ready[channel], 0
  if takes == nil then
    local lease = redis.call('ZSCORE', nodes, node)
    takes = lease and tonumber(lease) > now and lease % 1 < 0.9985
      and redis.call('PUBSUB', shard == '1' and 'SHARDNUMSUB' or 'NUMSUB', channel)[2] > 0 or false
    ready[channel], sharded[channel] = takes, shard
  end
  left = math.min(left, ends - now)
  if left <= 0 then
    reply = 8
  elseif takes then
    local text = 'p1 ' .. node .. '\n' .. digest .. '\t' .. caller .. '\n' .. frame
    local known = redis.pcall('SET', record, text, 'PX', keep, 'NX', 'GET')
    if type(known) == 'table' then
      failed = known
    elseif not known then
      if not messages[channel] then
        messages[channel], places[channel], channels[#channels + 1] = {}, {}, channel
      end
      local message, n = messages[channel], #places[channel] + 1
      message[2 * n - 1], message[2 * n] = '1 ' .. string.format('%.0f', left) .. ' ' .. #frame .. '\n', frame
      places[channel][n], reply = 2 * row, 1
    end
  end
  replies[row] = reply
end

-- The messages go out although a row has failed. The caller sends the rows again then, one by one.
for _, channel in ipairs(channels) do
  --< part/publish_all.lua
  if type(sent) == 'table' then
    for _, place in ipairs(places[channel]) do
      local record = KEYS[place]
      redis.call('DEL', record)
    end
    failed = sent
  end
end
if failed then
  error(failed)
end
return replies
