--- Delete removes one member from a set, and none that shares its score.
---
---@contract all-or-nothing  it writes once
---@retry    never  a repeat would say that nothing was there
---@key      set     zset  payloads, scored by due time in float seconds
---@arg      member  bytes  the payload
---@reply    int  1, or 0 when it was not there
---@cost     O(log n)

local set = KEYS[1]
local member = ARGV[1]

return redis.call('ZREM', set, member)
