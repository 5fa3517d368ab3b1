--- Mend checks again what an audit suspects, and repairs what is inconsistent.
---
--- The script reads all that decides about a suspect in this one step, so a job on its way from one
--- state to another is in order. There is one exception: of ready it reads only the 500 entries at
--- each end. A lost job has a body and is neither among these entries nor scheduled, leased or
--- dead. It becomes ready now. If it was in the middle of a long list, it is delivered twice. If it
--- was cancelled while it was leased, it gives up its unique name, and the next take deletes it.
---
--- A ghost is scheduled, leased or dead without a body, and is removed. An entry of ready without a
--- body gets the mark of a cancelled job, so that its id is not pushed again before a take drops
--- it. Counts and unique names of ids without a body are removed too. A living job gets back the
--- half of its hold that is missing. A hold without an end has none from now on. An end without a
--- hold is removed. A dead job loses a mark without an entry, and gets the mark of an entry that it
--- has. A cancelled job that lost its mark gets it again: it was finished after its entry was made.
--- dead_bytes becomes to, if it is from. For each suspect the script returns one verdict, in order.
---
--- Long because nine kinds of suspects are judged, and all of them before the first write.
---
---@contract dup-only  an error half-way can deliver a job twice, never lose one, or leaves some suspects as they are
---@retry    safe  what was mended is in order
---@key      ready      list  entries enqueued_at_ms:id, oldest at the head
---@key      scheduled  zset  id, scored by due time in ms
---@key      bodies     hash  id to body
---@key      leases     zset  id, scored by the end of its lease in us
---@key      failures   hash  id to the number of its failed deliveries, x for a cancelled job, b before the
---          number of a dead job that has an entry in ready; id and a line feed to the last reason
---@key      dead       zset  id, scored by the time of its death in ms
---@key      unique     hash  k:name to the id that holds it, j:id to the name it holds
---@key      expiry     zset  name of a unique key, scored by its end in ms
---@key      control    hash  paused, limit, dead_bytes, dead_limits
---@key      wake       zset  names of the waiting consumers, scored by the end of their wait in ms
---@key      options    hash  id to the options of a job, which push.lua wrote
---@key      finished   zset  ids of finished jobs, scored by that time in ms
---@arg      mend  bool  else nothing is written
---@arg      from  string  dead_bytes as the audit read it, - where there was none
---@arg      to    int  min=-1  dead_bytes as it must be, -1 for as it is
---@args     suspect  (kind enum(lost=0,ghost=1,count=2,name=3,end=4,unmark=5,mark=6,cancelled=7,
---          hollow=8), id string, name string)  max=100  name: the unique name, for name and end; the
---          time of the death as text, for unmark and mark; the stamp of the entry, for cancelled and hollow
---@error    LAYOUT  the queue has a later layout
---@reply    (corrected bool, verdicts int[])  corrected: dead_bytes was wrong; verdicts: 0 in
---          order, 1 out of step, 2 lost and cancelled
---@cost     O(log n) for each suspect, and 1000 entries of ready when a job may be lost

local ready, scheduled, bodies, leases, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, unique, expiry, control, wake, options = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local finished = KEYS[12]
local mend, from, to = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not (to and to >= -1 and to <= 2 ^ 53) then
  error('to must be -1 to 2^53')
end
if #ARGV > 303 then
  error('suspect: at most 100')
end

--< part/now_ms.lua

--< part/types.lua
redis.call('LLEN', ready)
redis.call('ZCARD', scheduled)
redis.call('ZCARD', leases)
redis.call('ZCARD', wake)
redis.call('HLEN', options)
redis.call('ZCARD', finished)
-- Texts are compared: what is no number is wrong too, and a script that adds to it would fail.
local corrected = to >= 0 and from ~= string.format('%.0f', to)
  and (redis.call('HGET', control, 'dead_bytes') or '-') == from

--< part/where.lua

--< part/mark_of.lua

local marks, ends, hollow, cancelled, halves, given = {}, {}, {}, {}, {}, {}
local entries, ghosts, counts, names, verdicts, n = {}, {}, {}, {}, {}, 0
for i = 4, #ARGV, 3 do
  local kind, id, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local there = redis.call('HEXISTS', bodies, id) == 1
  local verdict = 0
  if kind == '0' then
    if there and not placed(id) and not near(id) then
      -- A cancelled job goes to ready too: the next worker clears it away.
      verdict = redis.call('HGET', failures, id) == 'x' and 2 or 1
      cancelled[#cancelled + 1] = verdict == 2 and id or nil
      seen[id] = true
      entries[#entries + 1] = now_ms .. ':' .. id
    end
  elseif kind == '1' and not there then
    if placed(id) then
      verdict = 1
      ghosts[#ghosts + 1], counts[#counts + 1] = id, id
    end
  elseif kind == '8' and not there and not placed(id) then
    verdict = 1
    hollow[#hollow + 1] = id
  elseif kind == '2' and not there then
    local count = redis.call('HMGET', failures, id, id .. '\n')
    if not placed(id) and (count[1] or count[2] or redis.call('HEXISTS', options, id) == 1) then
      verdict = 1
      counts[#counts + 1] = id
    end
  elseif kind == '3' then
    --< part/mend_name.lua
  elseif kind == '4' then
    local holder, over = redis.call('HGET', unique, 'k:' .. name), redis.call('ZSCORE', expiry, name)
    if not holder and over or holder and not over and redis.call('HEXISTS', bodies, holder) == 1 then
      verdict = 1
      ends[#ends + 1] = {name, holder}
    end
  elseif there then
    local mark = mark_of(kind, id, name)
    verdict = mark and 1 or 0
    marks[#marks + 1] = mark and {id, mark} or nil
  end
  n = n + 1
  verdicts[n] = verdict
end
if mend ~= '1' then
  return {corrected and 1 or 0, verdicts}
end

-- The member does not exist; see take.lua. What was evicted is mended on a
-- server that is over its limit.
redis.call('ZREM', leases, '')
--< part/mend_write.lua
for _, id in ipairs(hollow) do
  --< part/tombstone.lua
end
if #entries > 0 then -- after the rest of a cancelled job: the next audit finds what is not ready
  redis.call('RPUSH', ready, unpack(entries, 1, #entries))
  --< part/wake_next.lua
end
return {corrected and 1 or 0, verdicts}
