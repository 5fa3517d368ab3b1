--- Reserve spends from limits of one slot, from all of them or none, ahead of what has flowed back.
---
--- The reply says how long to wait until the burst of each limit has room for its cost. So the reservations of one
--- limit are served in order of arrival, without a queue. With several limits the cost counts in each of them at the
--- same moment, at the end of the wait: until then it occupies all of them.
---
--- The receipt of a reservation is the end of the wait in us; r, s and what was settled, or v for none; of each limit
--- the end of its debt in us, and of its record when it began and how much was given back.
---
---@contract dup-only  an error half-way leaves what was spent, and the repeat spends it once more
---@retry    safe  a repeat finds the receipt
---@key      receipt  string  as above; expires
---@keys     limit  string  max=64  see part/gcra.lua; expires
---@arg      wait   int  min=0 max=4503599627370496  the longest wait, in us
---@arg      keep   ms  min=1 max=1000000000000  how long the receipt stays, more than the wait
---@args     row    (rate int, cost int, room int, most int)  max=64  of each limit, see allow.lua
---@reply    (state enum(refused=0, reserved=1, settled=2), wait int, by int, whole int)  refused: nothing was
---          spent; settled: it was given back already; wait: in us; by: the limit with that wait, counted from 1,
---          or 0; whole: after how many us the first limit is whole, 0 if nothing was spent
---@error    LAYOUT  the key holds no limit
---@cost     O(1) for each limit

local receipt = KEYS[1]
local wait, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local first, at = 2, -1
--< part/counts.lua
if not (wait and wait >= 0 and wait <= 2 ^ 52 and keep and keep >= 1 and keep <= 1e12) then
  error('wait must be 0 to 2^52 us, keep must be 1 to 1e12 ms')
end
--< part/now_us.lua
local kept = redis.call('GET', receipt)
if kept then
  local ends, state, whole = string.match(kept, '^(%d+) ([rs])%S* (%d+)')
  return {state == 'r' and 1 or 2, math.max((ends or 0) - now_us, 0), 0, math.max((whole or 0) - now_us, 0)}
end
--< part/gcra.lua
--< part/read.lua
local longest, by = 0, 0
for i, debt in ipairs(debts) do
  local needs = math.ceil((debt + ARGV[4 * i] - ARGV[4 * i + 1]) / ARGV[4 * i - 1])
  if needs > longest then
    longest, by = needs, i
  end
end
if longest > wait then
  return {0, longest, by, 0}
end
local marks = {}
for i = 2, #KEYS do
  local limit, tail = KEYS[i], tails[i - 1]
  local rate, cost, most = tonumber(ARGV[4 * i - 5]), tonumber(ARGV[4 * i - 4]), tonumber(ARGV[4 * i - 2])
  local debt = math.min(math.max(debts[i - 1], longest * rate) + cost, most)
  local began, last, given = string.match(tail, '^(%d+) (%d+) (%d+)$')
  tail = string.format('%s %.0f %s', began, math.max(last, now_us + longest), given)
  marks[i - 1] = string.format(' %.0f %s %s', now_us + math.floor(debt / rate), began, given)
  --< part/gcra_set.lua
end
redis.call('SET', receipt, string.format('%.0f r', now_us + longest) .. table.concat(marks), 'PX',
  string.format('%.0f', keep + math.ceil(longest / 1000)))
return {1, longest, by, string.match(marks[1], '%d+') - now_us}
