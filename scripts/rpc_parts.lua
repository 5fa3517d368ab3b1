--- RPCParts reads a gathered request: the answers for its caller, or the request for a node that missed it.
---
---@readonly
---@retry  safe  it only reads
---@key    gather  hash     see rpc_gather.lua
---@arg    asking  string?  the node that reads; none for the caller
---@args   want    string  max=500  nodes whose answers the caller wants
---@reply  (node string, left ms, frame bytes)[]  the stored answers, about 1 MB at most; for a
---        node the request, while its answer is expected
---@cost   O(n) for n nodes wanted

local gather = KEYS[1]
local asking = ARGV[1]
if #ARGV > 501 then
  error('want: at most 500')
end

local rows, n, size = {}, 0, 0
if asking ~= '' then
  local found = redis.call('HMGET', gather, 'n:' .. asking, 'f')
  if found[1] == 'p' or found[1] == 'u' then
    return {asking, redis.call('PTTL', gather), found[2]}
  end
  return rows
end
redis.call('HLEN', gather)
for i = 2, #ARGV do
  local want = ARGV[i]
  local value = size < 1000000 and redis.call('HGET', gather, 'n:' .. want)
  if value and string.sub(value, 1, 1) == 'd' then
    rows[n + 1], rows[n + 2], rows[n + 3] = want, 0, string.sub(value, 2)
    n, size = n + 3, size + #value
  end
end
return rows
