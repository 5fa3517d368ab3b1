--- RPCNodes lists the nodes of a bus and the remaining time of their leases.
---
---@readonly
---@retry  safe  it only reads
---@key    nodes  zset  node, scored by the end of its lease in ms; the fraction is its load
---@key    about  hash  node to its description
---@reply  (node string, left ms, text string)[]  left: 0 or less for a dead node
---@cost   O(n) for n nodes, 1000 at most

local nodes, about = KEYS[1], KEYS[2]

--< part/now_ms.lua
-- The server's clock in Unix ms, as text: Lua prints numbers from 1e14 up without their
-- last digits, and to turn a number into text costs more than to join two.
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-->
local now = tonumber(now_ms)

redis.call('HLEN', about)
local found = redis.call('ZRANGE', nodes, 0, 999, 'WITHSCORES')
local rows, n = {}, 0
for i = 1, #found, 2 do
  local text = redis.call('HGET', about, found[i]) or ''
  rows[n + 1], rows[n + 2], rows[n + 3] = found[i], math.floor(found[i + 1]) - now, text
  n = n + 3
end
return rows
