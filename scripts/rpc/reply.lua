--- Reply accepts the outcomes of requests, each once, and notifies the callers that wait for
--- them.
---
--- It accepts an outcome if the request is pending with this node and this attempt, and has this
--- body: the record of a key can be lost, and made again for another request. It refuses any other
--- outcome, and the result says why. The outcome is stored and published in one step, so a caller
--- that was disconnected reads it later. The record, and no message, names the callers. The
--- outcomes for one caller are one message: before each outcome are the line '0 0', its length and
--- a line feed.
---
--- Long because one call takes the rows of many handlers, and each row is accepted or refused by
--- itself.
---
---@contract dup-only  an error half-way leaves the reply stored, or the request pending
---@retry    safe  an accepted reply is a duplicate
---@merge    max=64
---@key      record   string  see call.lua
---@arg      node     string
---@arg      attempt  int  min=1
---@arg      digest   string  as of call.lua; also empty where the node cannot read the request
---@arg      state    string  what the record becomes: d, done, with the reply; r, refused: another node may
---          run it, or it has not run; l, lost: it has run in part
---@arg      frame    bytes   the reply as callers read it
---@arg      outbox   string  prefix of the callers' channels
---@arg      keep     ms  min=0  how long callers can read it; 0: as long as the request was to be kept
---@arg      shard    bool    sharded pub/sub, in a cluster
---@reply    enum(missing=0, accepted=1, duplicate=2, stale=3)  missing: the request is cancelled or expired;
---          stale: it belongs to another node, attempt or body, or is lost
---@cost     O(k) for k callers

if #KEYS > 64 then
  error('row: at most 64')
end

local replies, messages, channels, sharded, failed = {}, {}, {}, {}, nil
for row, record in ipairs(KEYS) do
  local at = 8 * row - 8
  local node, attempt, digest, state, frame = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local outbox, keep, shard = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  if state ~= 'd' and state ~= 'r' and state ~= 'l' then
    error('state is d, r or l')
  end

  local claim, reply = attempt .. ' ' .. node .. '\n' .. digest, 1
  --< part/head.lua
  local kind = type(head) == 'string' and string.sub(head, 1, 1)
  if not kind then
    failed = head
  elseif kind == '' or kind == 'x' then
    reply = 0
  elseif string.sub(head, 2, #claim + 1) ~= claim or kind == 'l' then
    reply = 3
  elseif kind ~= 'p' then
    reply = 2
  else
    local from = #claim + 2
    local line = string.sub(head, from, (string.find(head, '\n', from, true) or 0) - 1)
    local tab = string.find(line, '\t', 1, true) or #line + 1
    local value = state .. claim .. (state == 'r' and line or string.sub(line, 1, tab - 1)) .. '\n' .. frame
    local stored
    if keep == '0' then
      stored = redis.pcall('SET', record, value, 'KEEPTTL')
    else
      stored = redis.pcall('SET', record, value, 'PX', keep)
    end
    if stored.err then
      failed = stored
      line, tab = '', 0
    end
    local length, notified = '0 0 ' .. #frame .. '\n', 0
    for caller in string.gmatch(string.sub(line, tab + 1), '[^\t]+') do
      local channel = outbox .. caller
      if not messages[channel] then
        messages[channel], channels[#channels + 1], sharded[channel] = {}, channel, shard
      end
      local message = messages[channel]
      message[#message + 1] = length
      message[#message + 1] = frame
      notified = notified + 1
      if notified == 400 then -- decide.lua adds no more
        break
      end
    end
  end
  replies[row] = reply
end

-- The messages go out although a row has failed. The node sends the rows again then, one by one.
for _, channel in ipairs(channels) do
  --< part/publish_all.lua
  failed = type(sent) == 'table' and sent or failed
end
if failed then
  error(failed)
end
return replies
