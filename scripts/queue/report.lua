--- Report lists queues, the processes that consume them, and what they did today.
---
--- A process sends it every few seconds, with the counts since its last report. A producer sends it
--- without a process, only to list its queues. A process that has been silent for a minute after
--- its lease is removed by the next report of another process.
---
--- The field of no process in about has the epoch, which is when the first process made the hash, and when a loss was
--- found. A process sends the epoch and the number of its last report that had a reply. If the hash has another epoch,
--- or has an earlier report of it, the server has lost what it had, and the reply says so.
---
---@contract dup-only  an error half-way leaves some counts too high, once the report is repeated
---@retry    safe  a report whose number is known counts nothing, and an earlier one than the last lists no process
---@key      queues   zset  {name} or {tag}{name}, scored by the last report in ms; expires
---@key      workers  zset  process, scored by the end of its lease in ms; expires
---@key      about    hash  process to the number of its last report, a space, and its description; expires
---@key      counts   hash  queue, a line feed and p, f, d or x to the jobs of one day; expires
---@arg      process  string  empty for a producer
---@arg      number   int    min=0  of the report, counted up by the process
---@arg      lease    ms     min=1  how long the process is taken for alive
---@arg      description  bytes  of the process
---@arg      epoch  string  of the last reply that the process had; empty for none
---@arg      known  int  min=0  the number of the last report that had a reply
---@args     entry    (queue string, processed int, failed int, dead int, expired int)  max=200
---@reply    (last int, epoch string, lost bool)  last: the number of the last report
---@cost     O(log n) for each queue

local queues, workers, about, counts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local process, number, lease, description = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local epoch, known, numbered = ARGV[5], tonumber(ARGV[6]), tonumber(number)
if #ARGV > 1006 then
  error('entry: at most 200')
end
if not (numbered and numbered >= 0 and lease and lease >= 1 and known and known >= 0) then
  error('number and known must be 0 or more, and lease 1 or more')
end

--< part/now_ms.lua
-- A key of the wrong type stops the script here, while nothing is written.
redis.call('ZCARD', queues)
redis.call('ZCARD', workers)
redis.call('HLEN', counts)
local last = string.match(redis.call('HGET', about, process) or '', '^%d+')
local new = not last or tonumber(last) < numbered
local kept, found = string.match(redis.call('HGET', about, '') or '', '^(%d+) (%d+)$')
local lost = epoch ~= '' and (epoch ~= kept or tonumber(last or known) < known)

for i = 7, #ARGV, 5 do
  redis.call('ZADD', queues, now_ms, ARGV[i])
  for k, kind in ipairs({'p', 'f', 'd', 'x'}) do
    if new and tonumber(ARGV[i + k]) > 0 then
      local field = ARGV[i] .. '\n' .. kind
      local sum = redis.pcall('HINCRBY', counts, field, ARGV[i + k])
      if type(sum) == 'table' then
        -- A text to which Redis cannot add would stop each report of the day, and the counts before it would grow.
        if not string.find(sum.err, 'not an integer', 1, true) and not string.find(sum.err, 'overflow', 1, true) then
          error(sum)
        end
        redis.call('HSET', counts, field, ARGV[i + k])
      end
    end
  end
end
-- A copy of an earlier report comes late: the process may have left the list since.
if process ~= '' and (new or numbered == tonumber(last)) then
  if lost or not kept then
    kept = kept or time[1] .. string.sub('00000' .. time[2], -6)
    redis.call('HSET', about, '', kept .. ' ' .. (lost and now_ms or found or 0))
  end
  -- The number comes after the counts: an error half-way loses none of them.
  redis.call('HSET', about, process, number .. ' ' .. description)
  redis.call('ZADD', workers, string.format('%.0f', now_ms + lease), process)
  local dead = redis.call('ZRANGE', workers, '-inf', string.format('%.0f', now_ms - 60000), 'BYSCORE', 'LIMIT', 0, 100)
  if #dead > 0 then
    redis.call('HDEL', about, unpack(dead, 1, #dead))
    redis.call('ZREM', workers, unpack(dead, 1, #dead))
  end
end
-- What no process has named for 90 days is forgotten, and a day's counts are as old.
redis.call('ZREMRANGEBYSCORE', queues, '-inf', string.format('%.0f', now_ms - 7776000000))
redis.call('PEXPIRE', queues, '7776000000')
redis.call('PEXPIRE', counts, '7776000000')
redis.call('PEXPIRE', workers, '86400000')
redis.call('PEXPIRE', about, '86400000')
return {new and numbered or tonumber(last), kept or '', lost and 1 or 0}
