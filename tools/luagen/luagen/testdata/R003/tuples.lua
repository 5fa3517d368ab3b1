--- Tuples builds its reply in steps, and returns a reply that it has measured.
---@contract dup-only
---@key  jobs  zset
---@arg  mode  string
---@reply (id string, due float)?

local jobs, mode = KEYS[1], ARGV[1]
if mode == 'peek' then
  local first = redis.call('ZRANGE', jobs, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  return first
elseif mode == 'none' then
  local out = {'none'}
  out[2] = '0'
  return out
elseif mode == 'wrong' then
  local wrong = {'none', '0', 'more'}
  wrong[2] = '1'
  return wrong
elseif mode == 'number' then
  local number = {#mode}
  number[2] = '1'
  return number
end
local job = redis.call('ZPOPMIN', jobs)
if #job < 2 then return nil end
return job
