--- Decide gives a request to the first of its candidates that can take it, whatever has become
--- of the request.
---
--- It is for what call.lua leaves undecided: the first candidate cannot take it, or the request
--- is recorded.
---
--- A candidate can take a request if it has a lease and a subscriber. The script finds the
--- subscriber with PUBSUB NUMSUB, not by the count that PUBLISH returns: a subscriber of a replica
--- receives what is published here and is not counted. It must not run a request that was given to
--- another node.
---
--- 1. A request that arrives after its end does nothing.
--- 2. A record that exists decides. If the request is pending and its node is alive, the caller is
---    added to those that are notified. If it is done or lost, that is the outcome. If it was
---    refused, or its node is dead and it may run again, it goes to a candidate as the next attempt,
---    even if it was lost because of that death. The node that refused it may take it now. If its
---    node is dead and it may not run again, it is lost, and a late reply is refused.
--- 3. Without a record, the request is recorded as the first attempt.
---
--- In a cluster the channels belong to the slot, and its owner knows every subscriber. While the
--- slot moves, the nodes are subscribed elsewhere. Then the caller has no subscription here either,
--- and a valid lease of the node is enough: the node finds the request after it has subscribed
--- again.
---
--- Long because one script decides about a request in each of its states: new, known, lost, done.
---
---@contract dup-only  a request that cannot be published is not recorded, or stays with its last node
---@retry    safe  a call that is recorded is not sent again
---@key      nodes    zset    node, scored by the end of its lease in ms; the fraction is its load, .999: it leaves
---@key      record   string  see call.lua
---@arg      node     string  the first candidate; empty for none
---@arg      others   string  further candidates, a line each; 15 at most count
---@arg      caller   string  name of the caller
---@arg      outbox   string  prefix of the nodes' channels
---@arg      frame    bytes   the request as nodes read it
---@arg      digest   string  of the body, where other callers may name the record; else empty
---@arg      left     ms  min=1  how long the handler may take
---@arg      ends     int     when the request is over, by the server's clock in ms
---@arg      keep     ms  min=1  how long the record stays
---@arg      again    bool    whether another node may run it when its node is dead
---@arg      shard    bool    sharded pub/sub, in a cluster
---@arg      trust    bool    whether a valid lease is enough: the slot has just moved, and not every
---          node has subscribed at its new owner
---@reply    (outcome enum(sent=1, known=2, done=3, lost=4, cancelled=5, other_request=6, full=7, late=8, no_lease=9,
---          no_subscriber=10), node string, frame bytes)  known: it is pending; done: the frame is the reply;
---          lost: the frame is its end, if its node has sent it; full: no more callers are notified
---@error    LAYOUT  the key holds no call of this version
---@cost     O(log n) for each candidate

local nodes, record = KEYS[1], KEYS[2]
local node, others, caller, outbox, frame = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local digest, left, ends = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local keep, again, shard, trust = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
if #outbox + #caller + #digest > 1000 or #others > 4000 then
  error('outbox, caller and digest: at most 1000 bytes; others: at most 4000')
end

--< part/now_ms.lua
local now = tonumber(now_ms)
left = math.min(left, ends - now)
if left <= 0 then
  return {8, '', ''}
end

local numsub, callers = shard == '1' and 'SHARDNUMSUB' or 'NUMSUB', digest .. '\t' .. caller

-- alive reports whether the lease of a node is good; takes, whether the node takes requests, too.
local function alive(name)
  local score = tonumber(redis.call('ZSCORE', nodes, name) or '0')
  return score > now, score > now and score % 1 < 0.9985
end

local value = redis.call('GET', record)
local tries, last_owner, pending = 0, '', false
if value and string.sub(value, 1, 1) == 'x' then
  return {5, '', ''}
elseif value then
  --< part/record.lua
  local tab = string.find(line, '\t', 1, true) or #line + 1
  if string.sub(line, 1, tab - 1) ~= digest then
    return {6, owner, ''}
  elseif kind == 'd' or kind == 'l' and (again == '0' or #value > last) then
    return {kind == 'd' and 3 or 4, owner, string.sub(value, last + 1)}
  end
  tries, last_owner, pending, callers = attempt, owner, kind == 'p', line
  local known = string.find(line .. '\t', '\t' .. caller .. '\t', 1, true)
  local full = not known and #line + #caller > 3000 -- reply.lua reads 4096 bytes
  if not known and not full then
    callers = line .. '\t' .. caller
  end
  if pending and alive(owner) then
    if callers ~= line then
      redis.call('SET', record, string.sub(value, 1, stop) .. callers .. string.sub(value, last), 'KEEPTTL')
    end
    return {full and 7 or 2, owner, ''}
  end
end

local reason, count = 9, 0
for name in string.gmatch(node .. '\n' .. others, '[^\n]+') do
  count = count + 1
  if count > 16 or pending and again == '0' then
    break
  end
  local _, takes = alive(name)
  if takes then
    reason = 10
    -- Where the caller has no subscription either, the slot is moving.
    if trust == '1' or redis.call('PUBSUB', numsub, outbox .. name)[2] > 0
      or shard == '1' and redis.call('PUBSUB', numsub, outbox .. caller)[2] == 0 then
      local attempt = string.format('%.0f', tries + 1)
      redis.call('SET', record, 'p' .. attempt .. ' ' .. name .. '\n' .. callers .. '\n' .. frame, 'PX', keep)
      -- The header has the attempt, the remaining time and the length of the frame. A request that
      -- cannot be published leaves the record as it was.
      local message = attempt .. ' ' .. string.format('%.0f', left) .. ' ' .. #frame .. '\n' .. frame
      local sent = redis.pcall(shard == '1' and 'SPUBLISH' or 'PUBLISH', outbox .. name, message)
      if type(sent) == 'table' then
        if value then
          redis.call('SET', record, value, 'PX', keep)
        else
          redis.call('DEL', record)
        end
        error(sent)
      end
      return {1, name, ''}
    end
  end
end
if pending then
  local claim = string.format('%.0f', tries) .. ' ' .. last_owner .. '\n'
  redis.call('SET', record, 'l' .. claim .. digest .. '\n', 'KEEPTTL')
  return {4, last_owner, ''}
end
--< part/primary.lua
return {reason, '', ''}
