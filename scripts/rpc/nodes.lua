--- Nodes lists the nodes of a bus and the remaining time of their leases.
---
---@readonly
---@retry  safe  it only reads
---@key    nodes  zset  node, scored by the end of its lease in ms; the fraction is its load
---@key    about  hash  node to its description
---@args   name   string  max=1000  the nodes that are read; all where there are none
---@reply  (node string, left ms, later bool, text string)[]  left: 0 or less for a dead node; later: the text is
---        left out, as the rows hold 1 MB already
---@cost   O(n) for n nodes, 1000 at most

local nodes, about = KEYS[1], KEYS[2]
if #ARGV > 1000 then
  error('name: at most 1000')
end

--< part/now_ms.lua
local now = tonumber(now_ms)

redis.call('HLEN', about)
local names = ARGV
if #names == 0 then
  names = redis.call('ZRANGE', nodes, 0, 999)
end
local rows, n, size = {}, 0, 0
for i = 1, #names do
  local node = names[i]
  local lease, later = redis.call('ZSCORE', nodes, node) or '0', size > 1000000
  local text = not later and redis.call('HGET', about, node) or ''
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = node, math.floor(lease) - now, later and 1 or 0, text
  n, size = n + 4, size + #text
end
return rows
