-- A repeat of a recorded call returns its node, not the reason above: the first attempt may
-- have taken the last free capacity.
local head = redis.call('GETRANGE', record, 0, 255)
if head ~= '' then
  return {2, string.match(head, '^%a%d+ ([^\n]*)') or ''}
end
