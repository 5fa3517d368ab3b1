-- The debts of the limits from KEYS[first] on, with the tails of their records. A row of ARGV begins at 4 * i + at.
local debts, tails, stored = {}, {}, 0
local found = redis.call('MGET', unpack(KEYS, first, math.min(#KEYS, 65)))
for i = 1, #KEYS - first + 1 do
  local rate, most = tonumber(ARGV[4 * i + at]), tonumber(ARGV[4 * i + at + 3])
  local cost, room = tonumber(ARGV[4 * i + at + 1]), tonumber(ARGV[4 * i + at + 2])
  --< part/checks.lua
  debts[i], tails[i] = gcra_debt(found[i], rate, most)
  if not debts[i] then
    return redis.error_reply('LAYOUT the key holds no limit')
  end
  stored = stored + (found[i] and 1 or 0)
end
-- MGET hides a key of another type.
if stored <= #KEYS - first and redis.call('EXISTS', unpack(KEYS, first, math.min(#KEYS, 65))) > stored then
  for i = first, #KEYS do
    redis.call('GET', KEYS[i])
  end
end
