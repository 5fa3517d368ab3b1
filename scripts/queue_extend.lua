--- QueueExtend gives leased jobs more time: their leases end that long from now.
---
--- The new end is their new fence. A repeat cannot tell its own new fence from
--- another worker's, so a call without a reply is not sent again: the lease then
--- ends at the old time or the new one.
---
---@contract all-or-nothing  the one write comes last
---@retry    never  the fence changes
---@key      leases  zset  id, scored by the end of its lease in us
---@arg      lease   ms  min=1  the time from now
---@args     job  (id string, fence int)  max=500  fence: as take or the last extend returned it
---@reply    (fence int, verdicts int[])  fence: the end of the leases in us; verdicts: 0 lost, 1 extended
---@cost     O(log n) for each job, n being the number of leases

local leases = KEYS[1]
local lease = tonumber(ARGV[1])
if #ARGV > 1001 then
  error('job: at most 500')
end

--< part/now_us.lua
-- The server's clock in Unix us, as text; see now_ms.lua.
local time = redis.call('TIME')
local fraction = time[2]
if #fraction < 6 then
  fraction = string.sub('00000' .. fraction, -6)
end
local now_us = time[1] .. fraction
-->
local new_fence = string.format('%.0f', now_us + lease * 1000)

local verdicts, grants, n = {}, {}, 0
for i = 2, #ARGV, 2 do
  local id, fence = ARGV[i], tonumber(ARGV[i + 1])
  local score = redis.call('ZSCORE', leases, id)
  n = n + 1
  verdicts[n] = 0
  if score and tonumber(score) == fence then
    verdicts[n] = 1
    grants[#grants + 1] = new_fence
    grants[#grants + 1] = id
  end
end

-- The member does not exist; see queue_take.lua.
redis.call('ZREM', leases, '')
if #grants > 0 then
  redis.call('ZADD', leases, unpack(grants, 1, #grants))
end
return {tonumber(new_fence), verdicts}
