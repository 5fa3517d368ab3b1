-- A take that has no job leaves its number as well, for a copy that comes late. Where it dropped entries, there may be
-- jobs behind them: a repeat counts one as dropped, so that its caller looks again.
if fresh and not noted then
  local stay = string.format('%.0f', math.max(states[1].lease, 60000))
  redis.call('SET', KEYS[9], token .. ' 0\n' .. (total > 0 and '0:' or ''), 'PX', stay)
end
