--- Okay does what the test wants: clients see the text of a status.
---@contract dup-only
---@key lock
---@arg mode string
---@reply string

local lock, mode = KEYS[1], ARGV[1]
if mode == 'a' then return redis.status_reply('OK') end
if mode == 'b' then return redis.call('TYPE', lock) end
return redis.call('SET', lock, '1')
