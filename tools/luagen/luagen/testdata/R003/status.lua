--- Status returns the text of a status, and once where a number is declared.
---@contract all-or-nothing
---@retry safe
---@key   k  string
---@reply (text string, n int)

local k = KEYS[1]
redis.call('SET', k, '1')
if redis.call('EXISTS', k) == 2 then
  return {ok = 'STORED'}
end
return {{ok = 'STORED'}, {ok = 'STORED'}}
