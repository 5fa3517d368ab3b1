--- RPCRead gets parts of a streaming reply, and removes those that the caller has read.
---
---@contract dup-only  an error half-way leaves parts that expire
---@retry    safe  what was read is not asked for again
---@key      chunks  hash    parts by their number
---@arg      from    int  min=0  the first part that is wanted; 0: none
---@arg      read    int  min=0  the last part of those that are done with
---@arg      count   int  min=0  max=500  how many are done with; how many are wanted at most
---@arg      word    bytes  what the node is told, if anything
---@arg      channel string  channel of the node
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    bytes[]  the parts wanted, in order, up to the first that is missing
---@cost     O(n) for n parts

local chunks = KEYS[1]
local from, read, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local word, channel, shard = ARGV[4], ARGV[5], ARGV[6]
if not (count and count >= 0 and count <= 500) then
  error('count must be 0 to 500')
end
if not (from and from >= 0) then
  error('from must be 0 or more')
end

local out, size = {}, 0
redis.call('HLEN', chunks)
if from > 0 then
  for i = 0, count - 1 do -- not up to a number: above 2^53 it and the next one are the same
    local part = redis.call('HGET', chunks, string.format('%.0f', from + i))
    if not part or size > 1000000 then
      break
    end
    out[#out + 1] = part
    size = size + #part
  end
  return out
end
for i = 0, count - 1 do
  redis.call('HDEL', chunks, string.format('%.0f', read - i))
end
if word ~= '' then
  local message = word
  --< part/rpc_publish.lua
  -- In a cluster, channels are of a slot.
  if shard == '1' then
    redis.call('SPUBLISH', channel, message)
  else
    redis.call('PUBLISH', channel, message)
  end
  -->
end
return out
