--- Shapes does what the test wants.
---@contract all-or-nothing
---@key lock
---@arg n int
---@reply (a int, b string, c bool, d enum(x=1, y=2), e string[])

local lock = KEYS[1]
local n = ARGV[1]
local function pair() return 1, 2 end
local function short() return {1, 2} end
if n == 'a' then return {1, 'x'} end
if n == 'b' then return 1 end
if n == 'c' then return {a = 1} end
if n == 'd' then return {'x', 1, 2, 3, 'list'} end
if n == 'e' then return {1 == 2, 'x', 1, 1, pair()} end
if n == 'f' then return 1, 2 end
if n == 'g' then return end
if n == 'h' then return short() end
if n == 'i' then return redis.call('LRANGE', lock, 0, 9) end
if n == 'j' then return n end
if n == 'k' then return {{}, 'x', false, 'z', {a = 1}} end
if n == 'l' then return {true, 'x', true, 1, {}} end
if n == 'm' then return redis.status_reply('OK') end
if n == 'n' then return {pair, 'x', 1, 1, {'a'}} end
local t = {1, 2}
return t
