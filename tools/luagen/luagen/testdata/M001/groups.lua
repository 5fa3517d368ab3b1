--- Groups does what the test wants.
---@contract all-or-nothing
---@retry safe
---@merge max=64
---@keys item string
---@args token string max=64
---@reply int[]

return {}
