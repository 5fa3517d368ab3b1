--- AGrammar does what the test wants.
---@contract all-or-nothing
---@keys a (x list, x hash)
---@keys b (X list)
---@keys c (x lisst)
---@keys d (x list
---@keys e ()
---@keys f (x list) prose
---@keys g (x list) max=0

return 1
