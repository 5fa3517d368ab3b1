--- Stats counts the jobs of all sets and of the given queues at one moment.
---
---@readonly
---@retry  safe  it only reads
---@slots  any  the keys are Sidekiq's, which have no tag
---@key    schedule   zset    jobs for later
---@key    retry      zset    jobs that failed
---@key    dead       zset    jobs that are given up
---@key    processes  set     identities of the processes
---@key    processed  string  how many jobs were done
---@key    failed     string  how many of them failed
---@keys   queue      list  max=1000  payloads, the newest at the head
---@reply  (now int, scheduled int, retries int, dead int, processes int, processed string,
---        failed string, queues (size int, oldest bytes)[])  now: in us; size: -1 when the key is
---        no list; oldest: the payload that is next, empty when there is none
---@cost   O(1) for each queue

local schedule, retry, dead = KEYS[1], KEYS[2], KEYS[3]
local processes, processed, failed = KEYS[4], KEYS[5], KEYS[6]
if #KEYS > 1006 then
  error('queue: at most 1000')
end

local time = redis.call('TIME')
local queues = {}
for i = 7, #KEYS do
  local queue = KEYS[i]
  local size = redis.pcall('LLEN', queue)
  if type(size) == 'table' and not string.find(size.err, 'WRONGTYPE', 1, true) then
    error(size)
  end
  -- One key of another type does not hide the other queues.
  local list = type(size) == 'number'
  queues[2 * i - 13] = list and size or -1
  queues[2 * i - 12] = list and redis.call('LINDEX', queue, -1) or ''
end
return {
  time[1] * 1000000 + time[2],
  redis.call('ZCARD', schedule), redis.call('ZCARD', retry), redis.call('ZCARD', dead),
  redis.call('SCARD', processes),
  redis.call('GET', processed) or '0', redis.call('GET', failed) or '0',
  queues,
}
