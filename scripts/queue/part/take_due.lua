-- Some of what came due had no body. More is due, and comes before the jobs of later queues.
if fresh and #due == max and #entries < asked then
  due = redis.call('ZRANGE', scheduled, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, max)
  if #due > 0 then
    --< part/promote.lua
  end
  entries = redis.call('LRANGE', ready, read, read + asked - 1)
end
