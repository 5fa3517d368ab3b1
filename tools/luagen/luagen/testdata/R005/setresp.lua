--- Setresp does what the test wants.
---@contract all-or-nothing
---@reply int

redis.setresp(3)
return 1
