-- A queue of a later layout has a text in paused and in limit that no script of this one writes.
local paused = redis.call('HGET', control, 'paused')
if paused and paused ~= '1' then
  return redis.error_reply('LAYOUT the queue has a later layout')
end
