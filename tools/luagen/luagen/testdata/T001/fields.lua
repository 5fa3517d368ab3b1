--- Fields asks for one field of a hash and counts in another.
---@contract dup-only
---@retry safe  the author believes so
---@key h       hash
---@key board   zset
---@arg id      string
---@arg version int

local h, board = KEYS[1], KEYS[2]
local id, version = ARGV[1], tonumber(ARGV[2])
redis.call('ZCARD', board)
-- A repeat finds as it was what nothing here writes.
if redis.call('HGET', h, 'state') == 'open' then
  redis.call('HINCRBY', h, 'sold', 1)
end
if redis.call('HEXISTS', h, 'on:' .. id) == 1 then
  redis.call('HINCRBYFLOAT', h, 'sum', 0.5)
end
local have = redis.call('HMGET', h, 'state', 'owner')
if have[2] == id then
  redis.call('HINCRBY', h, 'sold', 1)
end
-- A repeat goes on where a version, a mark or all fields show the first run.
if tonumber(redis.call('HGET', h, 'version') or 0) < version then
  redis.call('HSET', h, 'version', version, 'at', 1)
  redis.call('HINCRBY', h, 'changes', 1)
end
local seen = redis.call('HMGET', h, 'version', 'changes')
if tonumber(seen[1] or 0) < version then
  redis.call('HINCRBY', h, 'changes', 1)
end
if redis.call('HEXISTS', h, 'o:' .. id) == 0 then
  redis.call('HSET', h, 'o:' .. id, 1)
  redis.call('HINCRBY', h, 'taken', 1)
end
if redis.call('HLEN', h) == 0 then
  redis.call('HINCRBY', h, 'first', 1)
end
if redis.call('HSETNX', h, 'once', id) == 1 then
  redis.call('HINCRBY', h, 'taken', 1)
end
if redis.call('HGET', h, id) == 'x' then
  redis.call('HINCRBY', h, 'taken', 1)
end
-- The field that grows is no limit of itself.
if tonumber(redis.call('HGET', h, 'n') or 0) < 5 then
  redis.call('HINCRBY', h, 'n', 1)
end
