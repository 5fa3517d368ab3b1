-- The first line of a record has its state, attempt and node; the second the digest and the callers.
local kind, space = string.sub(value, 1, 1), string.find(value, ' ', 1, true)
local stop = string.find(value, '\n', space, true)
local last = string.find(value, '\n', stop + 1, true)
local attempt, owner = tonumber(string.sub(value, 2, space - 1)), string.sub(value, space + 1, stop - 1)
local line = string.sub(value, stop + 1, last - 1)
