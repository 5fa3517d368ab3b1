--- Acquire takes a lock that is free, as SET NX PX does, and can give it a fence.
---
--- A fence is greater than every one before, also when its key has expired: it is not smaller
--- than the server's clock.
---
---@contract dup-only  an error half-way can leave a greater fence than any that was given
---@allow    V001 fence: each call that holds the lock has a new one
---@retry    safe  a token that holds the lock gets it again
---@slots    any  the name of the lock is another library's; that of the fence has it as a tag
---@key      lock   string  the token of its holder
---@keys     fence  string  max=1  the last fence; a day
---@arg      token  string  of this acquire alone
---@arg      ttl    ms  min=1
---@reply    (acquired bool, remaining int, fence int)  remaining: of the other's, in ms; below 0 if it
---          has no end; fence: 0 where its key is not given
---@error    LAYOUT  the key of the fence holds something else
---@cost     O(1)

local lock = KEYS[1]
local token, ttl = ARGV[1], ARGV[2]
if not (ttl + 0 >= 1) then
  error('ttl must be 1 or more')
end
if #KEYS > 2 then
  error('fence: at most 1')
end

local holder = redis.call('GET', lock)
if holder and holder ~= token then
  return {0, redis.call('PTTL', lock), 0}
end
local fence, number = KEYS[2], 0
if fence then
  local time = redis.call('TIME')
  local last = redis.call('GET', fence) or '0'
  if not string.match(last, '^%d+$') or tonumber(last) > 2 ^ 52 then
    return redis.error_reply('LAYOUT the key of the fence holds no fence; delete it')
  end
  number = math.max(time[1] * 1000000 + time[2], last + 1)
  redis.call('SET', fence, string.format('%.0f', number), 'PX', 86400000)
end
redis.call('SET', lock, token, 'PX', ttl)
return {1, 0, number}
