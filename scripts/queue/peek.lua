--- Peek reads jobs of one state without touching them, in the order in which they come up.
---
---@readonly
---@retry  safe  it only reads
---@key    ready      list  entries enqueued_at_ms:id, oldest at the head
---@key    scheduled  zset  id, scored by due time in ms
---@key    leases     zset  id, scored by the end of its lease in us
---@key    dead       zset  id, scored by the time of its death in ms
---@key    bodies     hash  id to body
---@key    failures   hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key    options    hash  id to the options of a job, which push.lua wrote
---@arg    state   enum(ready=0,scheduled=1,leased=2,dead=3)
---@arg    offset  int  min=0
---@arg    max     int  min=1 max=200
---@arg    bytes   int  min=1  stop before the bodies exceed this; one job is always read
---@reply  (rest int?, jobs (id string, at int, body bytes, failures int, reason string, options string)[])
---        rest: the offset of the first job that would be too much; at: enqueued, due
---        or died, in ms; of a leased job the end of its lease, in us
---@cost   O(log n + offset) and O(1) for each job; O(offset) for ready ones

local ready, scheduled, leases, dead, bodies, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local options = KEYS[7]
local state, offset, max, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not (max and max >= 1 and max <= 200) then
  error('max must be 1 to 200')
end

local found, first, last = {}, string.format('%.0f', offset), string.format('%.0f', offset + max - 1)
if state == '0' then
  for i, entry in ipairs(redis.call('LRANGE', ready, first, last)) do
    local stamp, id = string.match(entry, '^(%d+):(.*)$')
    found[2 * i - 1], found[2 * i] = id or '', stamp or '' -- a foreign entry names no job
  end
elseif state == '1' then
  found = redis.call('ZRANGE', scheduled, first, last, 'WITHSCORES')
elseif state == '2' then
  found = redis.call('ZRANGE', leases, first, last, 'WITHSCORES')
else
  found = redis.call('ZRANGE', dead, first, last, 'WITHSCORES')
end

local rows, n, size, rest = {}, 0, 0, false
for i = 1, #found, 2 do
  local id = found[i]
  local body = redis.call('HGET', bodies, id)
  local count = redis.call('HMGET', failures, id, id .. '\n')
  local mark, failed = string.match(count[1] or '', '^([bx]?)(%d*)$')
  -- A cancelled job, or one that was buried while ready, may have its entry still.
  local over = mark == 'x' and state ~= '2' or mark == 'b' and state == '0' and redis.call('ZSCORE', dead, id)
  if body and not over then
    size = size + #body
    if n > 0 and size > bytes then
      rest = offset + (i - 1) / 2
      break
    end
    rows[n + 1], rows[n + 2], rows[n + 3] = id, math.min(tonumber(found[i + 1]), 2 ^ 53), body
    rows[n + 4], rows[n + 5] = tonumber(failed) or 0, count[2] or ''
    rows[n + 6] = redis.call('HGET', options, id) or ''
    n = n + 6
  end
end
return {rest, rows}
