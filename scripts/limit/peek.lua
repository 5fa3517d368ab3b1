--- Peek reads the debts of limits.
---
---@readonly
---@keys     limit  string  max=64  see part/gcra.lua
---@args     row    (rate int, cost int, room int, most int)  max=64  of each limit, see allow.lua
---@reply    int[]  the debt of each limit, in parts
---@error    LAYOUT  the key holds no limit
---@cost     O(1) for each limit

local first, at = 1, -3
--< part/counts.lua
--< part/now_us.lua
--< part/gcra.lua
--< part/read.lua
return debts
