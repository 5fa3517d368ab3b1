--- Extend gives leased jobs more time: their leases end that long from now.
---
--- The new end is the new fence of the jobs. The receipt keeps it for as long as the lease. So a
--- repeat after a lost reply sets the same fence, and recognizes a job that already has it. A job
--- that was cancelled meanwhile gets the time too, so that its worker can stop.
---
---@contract all-or-nothing  a refused extension is followed by the undoing of its receipt
---@retry    safe  the same receipt gives the same fence again, for as long as the lease
---@key      leases   zset    id, scored by the end of its lease in us
---@key      receipt  string  the new fence, kept for a repeat of this call
---@key      failures hash    id to the number of its failed deliveries, x for a cancelled job
---@arg      lease    ms  min=1  the time from now
---@args     job  (id string, fence int)  max=500  fence: as take or the last extend returned it
---@reply    (fence int, verdicts int[])  fence: the end of the leases in us; verdicts: 0 lost, 1 extended,
---          2 extended and cancelled
---@cost     O(log n) for each job, n being the number of leases
---@allow    W002 an undo goes as far as it can

local leases, receipt, failures = KEYS[1], KEYS[2], KEYS[3]
local lease = tonumber(ARGV[1])
if #ARGV > 1001 then
  error('job: at most 500')
end
if not (lease and lease >= 1) then
  error('lease must be 1 or more')
end

--< part/now_us.lua
local kept = redis.call('GET', receipt)
local failed = redis.call('HLEN', failures) > 0
local new_fence = kept or string.format('%.0f', now_us + lease * 1000)

local verdicts, grants, n = {}, {}, 0
for i = 2, #ARGV, 2 do
  local id, fence = ARGV[i], tonumber(ARGV[i + 1])
  local score = redis.call('ZSCORE', leases, id)
  n = n + 1
  verdicts[n] = 0
  if score and (tonumber(score) == fence or tonumber(score) == tonumber(new_fence)) then
    verdicts[n] = failed and redis.call('HGET', failures, id) == 'x' and 2 or 1
    grants[#grants + 1] = new_fence
    grants[#grants + 1] = id
  end
end

-- The member does not exist; see take.lua.
redis.call('ZREM', leases, '')
if #grants > 0 then
  if not kept then
    redis.call('SET', receipt, new_fence, 'PX', string.format('%.0f', lease))
  end
  local added = redis.pcall('ZADD', leases, unpack(grants, 1, #grants))
  if type(added) == 'table' then
    if not kept then
      redis.pcall('DEL', receipt)
    end
    error({err = added.err})
  end
end
return {tonumber(new_fence), verdicts}
