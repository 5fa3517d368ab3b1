--- Late does what the test wants.
---@contract all-or-nothing
---@merge max=64
---@key item string
---@reply int
---@error NONE there is none

local out, all = {}, {}
for row, item in ipairs(KEYS) do
  out[row], all[row] = row, item
end
redis.call('SET', KEYS[1], 1)
for row, item in ipairs(KEYS) do
  if not redis.call('GET', item) then
    return redis.error_reply('NONE there is none')
  end
end
return out
