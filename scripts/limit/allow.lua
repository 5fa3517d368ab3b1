--- Allow spends from a limit if as much is there.
---
--- The script is written for many calls: the limits of all of them are read before one is written, and each is written
--- once. See part/gcra.lua for the record and for what a part is. A limit of which nothing is spent has no key.
---
---@merge    max=64
---@contract dup-only  an error half-way leaves spent what calls before it spent
---@retry    never  a repeat spends again
---@key      limit  string  see part/gcra.lua; expires
---@arg      rate   int  min=1 max=4503599627370496  parts that flow back in a us
---@arg      cost   int  min=0 max=4503599627370496  what to spend, in parts; 0 only reads
---@arg      room   int  min=1 max=4503599627370496  the most debt that a call may leave: the burst
---@arg      most   int  min=1 max=4503599627370496  the most debt of a reservation
---@reply    int  the debt after the call, in parts; if the cost does not fit, -1 less the debt
---@error    LAYOUT  the key holds no limit
---@cost     O(1)
---@allow    K001 each row of a limit is of an entry of KEYS

--< part/now_us.lua
--< part/gcra.lua
if #KEYS > 64 then
  error('row: at most 64')
end
local limits, replies = {}, {}
for i, limit in ipairs(KEYS) do
  local rate, cost = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  local room, most = tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i])
  --< part/checks.lua
  local known = limits[limit]
  if not known or known[2] ~= rate then
    local debt, tail
    if known then
      debt, tail = math.ceil(known[1] / known[2]) * rate, known[4] -- as gcra_debt reads it
    else
      debt, tail = gcra_debt(redis.call('GET', limit), rate, most)
    end
    if not debt then
      return redis.error_reply('LAYOUT the key holds no limit')
    end
    known = {math.min(debt, most), rate, most, tail, known and known[5]}
    limits[limit] = known
  end
  if known[1] + cost > room then
    replies[i] = -1 - known[1]
  else
    known[1] = known[1] + cost
    known[3] = most
    known[5] = known[5] or cost > 0
    replies[i] = known[1]
  end
end
for limit, known in pairs(limits) do
  local debt, rate, most, tail, spent = unpack(known, 1, 5)
  if spent then
    --< part/gcra_set.lua
  end
end
if #KEYS == 1 then
  return replies[1] -- a number costs less than an array
end
return replies
