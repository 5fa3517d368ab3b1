-- The record of a lock, see lock_acquire.lua: this is its one parser.
local fence_was, waiting, holder, start, length, rest, last, held =
  string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
