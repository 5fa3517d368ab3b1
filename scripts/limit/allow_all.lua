--- AllowAll spends from several limits of one slot if all of them have as much, or from none.
---
--- See allow.lua for one limit, and part/gcra.lua for the record.
---
---@contract dup-only  all limits are read before one is written; an error between two writes leaves the first spent
---@retry    never  a repeat spends again
---@keys     limit  string  max=64  see part/gcra.lua; expires
---@args     row    (rate int, cost int, room int, most int)  max=64  of each limit, see allow.lua
---@reply    (allowed bool, debts int[])  debts: of each limit in parts, after the call
---@error    LAYOUT  the key holds no limit
---@cost     O(1) for each limit

local first, at = 1, -3
--< part/counts.lua
--< part/now_us.lua
--< part/gcra.lua
--< part/read.lua
for i, debt in ipairs(debts) do
  if debt + ARGV[4 * i - 2] > tonumber(ARGV[4 * i - 1]) then
    return {0, debts}
  end
end
for i, limit in ipairs(KEYS) do
  local rate, cost, most = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2]), tonumber(ARGV[4 * i])
  local debt, tail = debts[i] + cost, tails[i]
  debts[i] = debt
  if cost > 0 then
    --< part/gcra_set.lua
  end
end
return {1, debts}
