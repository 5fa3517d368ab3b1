--- Rows does what the test wants.
---@contract all-or-nothing
---@reply (a int, b int)[]

if redis.call('TIME')[1] == '1' then
  return {1, 2, 3}
end
return {1, 'x'}
