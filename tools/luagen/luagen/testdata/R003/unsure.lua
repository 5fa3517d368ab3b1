--- Unsure does what the test wants: the option can be GET.
---@contract dup-only
---@key lock
---@arg mode string
---@reply int?

local lock, mode = KEYS[1], ARGV[1]
return redis.call('SET', lock, '1', mode)
