--- Ways replies numbers with a fraction by several ways.
---@contract all-or-nothing
---@key   h     hash
---@arg   rate  float
---@arg   n     int
---@reply (a int, b int, c int, d int?, e int, f int, g int, h int, i int, j int)

local h = KEYS[1]
local rate, n = tonumber(ARGV[1]), tonumber(ARGV[2])
local have = redis.call('HGET', h, 'have')
local tokens = tonumber(have or 0)
tokens = math.min(100, tokens + n * rate)
if tokens >= 1 then
  tokens = tokens - 1
end
local half = n / 2
local root = math.sqrt(n)
if n == 1 then
  return {tokens, half, -(n / 3), n * 0.5, root + 1, n ^ 0.5, n ^ -1, math.max(half, 1), half % 2, (n / 3) + 1}
end
-- These are whole.
local floored = n / 2
floored = math.floor(floored)
local whole = math.floor(rate)
return {floored, whole, #ARGV / 2, (n - n % 3) / 3, half - half % 1, n * 2, n ^ 2, math.max(n, 1), n % 2, n + 1}
