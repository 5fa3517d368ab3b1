-- Notify the consumer that has waited longest. A channel without a subscriber was that of
-- a dead process: the next one has its turn. This is only a hint: where the user may not
-- run one of the commands, all else is as before.
for _ = 1, 8 do
  local first = redis.pcall('ZPOPMIN', wake)
  if first.err or not first[1] or redis.pcall('PUBLISH', first[1], '') ~= 0 then
    break
  end
end
