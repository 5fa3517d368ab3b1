--- Versions uses what some servers lack.
---@contract dup-only
---@uses cmsgpack
---@key job   hash
---@key list  list

local job, list = KEYS[1], KEYS[2]
redis.call('HPEXPIRE', job, 1000, 'FIELDS', 1, 'f')
redis.call('BLPOP', list, 1)
redis.call('HSET', job, 'f', cmsgpack.pack(1))
