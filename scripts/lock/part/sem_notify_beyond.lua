-- notify_beyond notifies the first waiter of another process, within the 16 behind the head, if permits
-- were granted: their process may be dead, with the head.
local function notify_beyond(granted, process, length)
  for _, entry in ipairs(granted > 0 and redis.call('ZRANGE', queue, 1, 16) or {}) do
    local token = string.match(entry, '^(%S+) ') or ''
    if string.match(token, '^[^.]*') ~= process then
      return notify(channel .. string.match(token, '^[^.]*'), 'n ' .. token .. ' ' .. length)
    end
  end
end
