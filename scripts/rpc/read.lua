--- Read reads parts of a streaming reply, or deletes the parts that the caller has read.
---
--- The number of the last part that was read stays with the parts: the node may ask for it, and no
--- late copy of such a part is stored.
---
---@contract dup-only  an error half-way leaves parts that expire
---@retry    safe  a caller reads no part twice
---@key      chunks  hash    see chunk.lua
---@arg      from    int  min=0  the first part to read; 0: delete parts
---@arg      read    int  min=0  the last part to delete
---@arg      count   int  min=0  max=500  the most parts to read, or how many to delete
---@arg      notice  bytes  what is published to the node; empty for nothing
---@arg      channel string  channel of the node
---@arg      shard   bool    sharded pub/sub, in a cluster
---@reply    bytes[]  the parts in order, up to the first missing one
---@cost     O(n) for n parts

local chunks = KEYS[1]
local from, read, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local notice, channel, shard = ARGV[4], ARGV[5], ARGV[6]
if not (count and count >= 0 and count <= 500) then
  error('count must be 0 to 500')
end
if not (from and from >= 0 and read and read >= 0) then
  error('from and read must be 0 or more')
end

local out, size = {}, 0
local known = redis.call('HGET', chunks, '0')
local stored = redis.call('HLEN', chunks)
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
-- The first write needs no memory: a full server refuses none after it. A late copy finds no parts, or a later mark.
redis.call('HDEL', chunks, '')
if stored > 0 and read > (tonumber(known or '0') or 0) then
  redis.call('HSET', chunks, '0', string.format('%.0f', read))
end
for i = 0, count - 1 do
  redis.call('HDEL', chunks, string.format('%.0f', read - i))
end
if notice ~= '' then
  local message = notice
  --< part/publish.lua
end
return out
