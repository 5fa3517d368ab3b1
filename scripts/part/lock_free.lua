-- What stands in the record of a free lock that nobody waits for, between the fence, which
-- has 16 digits, and who released last.
local free = ' 0 - 0 0 0 '
