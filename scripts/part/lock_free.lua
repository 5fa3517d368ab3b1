-- The fields of a free lock without waiters, between its fence, which has 16 digits, and its
-- last releaser.
local free = ' 0 - 0 0 0 '
