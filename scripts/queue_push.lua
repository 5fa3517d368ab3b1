--- QueuePush adds jobs to a queue, each ready at once or scheduled, all of them or none.
---
--- A job whose id the queue already knows (ready, scheduled, leased or dead) is a
--- duplicate: it is left as it is and reported by its position in the call. Every
--- ready job carries one stamp from the server's clock, its enqueued_at.
---
---@contract all-or-nothing  a write refused half-way is followed by the undoing of those before it
---@retry    safe  the same receipt gives the first result again, for as long as it is kept
---@key      ready      list    entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset    id, scored by due time in ms
---@key      bodies     hash    id to body
---@key      receipt    string  the result, kept for a repeat of this call
---@arg      keep       ms  min=1  how long the receipt is kept
---@arg      fresh      bool  every id was made for this call, so none is looked up
---@args     job        (id string, due int, body bytes)  max=1000  due: 0 at once, above 0 Unix ms, below 0 so many ms from now
---@reply    (ready int, scheduled int, now time.ms, duplicates int[])
---@cost     O(log n) for each scheduled job, O(1) for each ready one
---@allow    W002 an undo goes as far as it can

local ready, scheduled, bodies, receipt = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keep, fresh = ARGV[1], ARGV[2]

-- A repeat: the jobs are in, whatever has become of them since.
local first = redis.call('GET', receipt)
if first then
  local r, s, at, list = string.match(first, '^(%d+) (%d+) (%d+) ?(.*)$')
  local positions = {}
  for p in string.gmatch(list, '%d+') do
    positions[#positions + 1] = tonumber(p)
  end
  return {tonumber(r), tonumber(s), tonumber(at), positions}
end

local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(time[2] / 1000))
local now_ms = tonumber(now)

local length = redis.call('LLEN', ready)

local seen, duplicates = {}, {}
local fields, entries, ids, dues = {}, {}, {}, {}
local f, e, d, later = 0, 0, 0, 0
for i = 3, #ARGV, 3 do
  local id, due, body = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if fresh ~= '1' and (seen[id] or redis.call('HEXISTS', bodies, id) == 1) then
    duplicates[#duplicates + 1] = (i - 3) / 3
  else
    seen[id] = true
    fields[f + 1], fields[f + 2] = id, body
    f = f + 2
    if due < 0 then
      due = now_ms - due
    end
    if due > now_ms then
      dues[d + 1], dues[d + 2] = string.format('%.0f', due), id
      d, later = d + 2, later + 1
    else
      e = e + 1
      entries[e] = now .. ':' .. id
    end
  end
end

-- Bodies first: what no list names cannot be taken. A write can be refused for
-- the type of its key, or by an ACL that allows some of the commands.
local failure
local function write(command, key, list, n)
  for i = 1, n, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, n)))
      failure = type(done) == 'table' and done.err
    end
  end
end
write('HSET', bodies, fields, f)
write('ZADD', scheduled, dues, d)
write('RPUSH', ready, entries, e)
if not failure then
  local text = e .. ' ' .. later .. ' ' .. now .. ' ' .. table.concat(duplicates, ',')
  local done = redis.pcall('SET', receipt, text, 'PX', keep)
  failure = done.err
end
if failure then
  for i = 1, f, 2 do
    redis.pcall('HDEL', bodies, fields[i])
    redis.pcall('ZREM', scheduled, fields[i])
  end
  if length == 0 then
    redis.pcall('DEL', ready)
  else
    redis.pcall('LTRIM', ready, 0, length - 1)
  end
  error({err = failure})
end
return {e, later, now_ms, duplicates}
