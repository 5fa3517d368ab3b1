--- Unread has options that are prose.
---@contract all-or-nothing
---@key  a string  the first = "a:{$x}"
---@keys b string  max = 10
---@arg  m int  pieces  min=1
---@arg  n int  MAX=10
---@args o int max=10  at most 1 MiB, bytes=1 or so

return 1
