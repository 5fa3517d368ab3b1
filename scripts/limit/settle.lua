--- Settle ends a reservation: it gives back what was not used, or spends what was used beyond it.
---
--- What has flowed back since the reservation is not given back, or what will have until a later reservation has
--- waited: more would pass than the burst and the rate allow. Nor is anything of a limit that was reset, or whose
--- record is gone. See reserve.lua for the receipt. Without one the script leaves one, so that a late reserve does
--- nothing.
---
---@contract dup-only  the receipt is written first: a refund that cannot be stored is lost
---@retry    safe  a repeat finds the receipt settled
---@key      receipt  string  see reserve.lua; expires
---@keys     limit  string  max=64  see part/gcra.lua; expires
---@arg      used   string  what was used: a repeat is known by it
---@arg      keep   ms  min=1 max=1000000000000  how long the receipt stays
---@args     row    (rate int, back int, more int, most int)  max=64  of each limit: parts to give back, and to spend
---@reply    enum(gone=0, settled=1, before=2)  gone: there was no receipt; before: it was settled otherwise
---@error    LAYOUT  the key holds no limit
---@cost     O(1) for each limit
---@allow    K001 each row is of an entry of KEYS

local receipt = KEYS[1]
local used, keep = ARGV[1], tonumber(ARGV[2])
local first, at = 2, -1
--< part/counts.lua
if not (#used <= 20 and keep and keep >= 1 and keep <= 1e12) then
  error('used must be 20 bytes at most, keep must be 1 to 1e12 ms')
end
for i = 3, #ARGV, 4 do
  local rate, back, more, most = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  if not (rate and rate >= 1 and back and back >= 0 and more and more >= 0 and more <= 2 ^ 52 and most and most >= 1
    and most <= 2 ^ 52) then
    error('row must have a rate and a most from 1, nothing below 0, nothing above 2^52')
  end
end
--< part/now_us.lua
--< part/gcra.lua
local kept = redis.call('GET', receipt)
if not kept or kept == '0 v' then
  redis.call('SET', receipt, '0 v', 'PX', string.format('%.0f', keep))
  return 0
end
local ends, state, marks = string.match(kept, '^(%d+) (%S+)(.*)$')
if state ~= 'r' then
  return state == 's' .. used and 1 or 2
end
local rows, row = {}, 1
for whole, began, given in string.gmatch(marks, ' (%d+) (%d+) (%d+)') do
  local limit, rate, back = KEYS[row + 1], tonumber(ARGV[4 * row - 1]), tonumber(ARGV[4 * row])
  local more, most = tonumber(ARGV[4 * row + 1]), tonumber(ARGV[4 * row + 2])
  if not limit then
    error('limit: the receipt has more')
  end
  local debt, tail = gcra_debt(redis.call('GET', limit), rate, most)
  if not debt then
    return redis.error_reply('LAYOUT the key holds no limit')
  end
  local began_now, last, given_now = string.match(tail, '^(%d+) (%d+) (%d+)$')
  local left = began_now == began and (whole - math.max(now_us, last) - (given_now - given)) * rate or 0
  back = math.max(math.min(back, left, debt), 0)
  tail = string.format('%s %s %.0f', began_now, last, given_now + math.ceil(back / rate))
  rows[row] = {limit, math.min(debt - back + more, most), rate, most, tail, back + more > 0}
  row = row + 1
end
redis.call('SET', receipt, ends .. ' s' .. used, 'PX', string.format('%.0f', keep))
for _, settled in ipairs(rows) do
  local limit, debt, rate, most, tail, changed = unpack(settled, 1, 6)
  if changed then
    --< part/gcra_set.lua
  end
end
return 1
