--- Allow spends n units of a rate limit, or says when they will be there.
---
--- It is GCRA: one number for each limit, the time at which all of it has flowed back. A limit that is not spent from
--- has no key.
---
---@contract all-or-nothing  one write
---@retry    never  a repeat spends again
---@key      limit   string = "limit:{$name}"  the time at which it is whole again, in us; expires then
---@arg      n       int  min=0 max=1000000  0 only reads
---@arg      burst   int  min=1 max=1000000  units that can be spent at once
---@arg      period  ms   min=1 max=86400000  in which that many flow back
---@reply    (allowed bool, left int, retry_after ms)  left: units; retry_after: 0 when allowed
---@error    TOO_MUCH  n is more than the burst: it will never be there
---@cost     O(1)

local limit = KEYS[1]
local n, burst, period = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) * 1000
if n > burst then
  return redis.error_reply('TOO_MUCH the limit is ' .. burst)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local unit = period / burst
local whole = math.max(now, tonumber(redis.call('GET', limit) or 0))
local next_whole = whole + n * unit
if next_whole - now > period then
  return {0, math.max(math.floor((period - (whole - now)) / unit), 0), math.ceil((next_whole - now - period) / 1000)}
end
if n > 0 then
  redis.call('SET', limit, string.format('%.0f', next_whole), 'PX', math.ceil((next_whole - now) / 1000))
end
return {1, math.floor((period - (next_whole - now)) / unit), 0}
