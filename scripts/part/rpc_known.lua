-- A repeat of a call that was sent does not hear that nobody has it: it may have taken the
-- last room itself.
local head = redis.call('GETRANGE', record, 0, 255)
if head ~= '' then
  return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
end
