--- None returns no rows in the cheap way.
---@readonly
---@reply (n int, rows (id string)[], ids string[])

if redis.call('TIME')[1] == '1' then
  return {0, {}, {}}
end
return {0, false, false}
