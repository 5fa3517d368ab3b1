-- entry_parts parses an entry of the queue, see lock_acquire.lua.
local function entry_parts(head)
  return string.match(head, '^(%S+) (%d+) (%d+) ([^\n]+)\n(.*)$')
end

-- hand_over gives the free lock to the first waiter that is alive, and notifies the next waiter
-- when to check. It returns the new holder, the length of its lease and its note.
local function hand_over()
  local unreachable, dead = {}, 0
  for _ = 1, 10000 do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    waiting = heads[2] and '1' or '0'
    if not heads[1] then
      return
    end
    local token, lease, pause, channel, text = entry_parts(heads[1])
    local alive = token == owner or not unreachable[channel] and subscribed(channel)
    if alive then
      local record = lock_record(fence, waiting, token, now_us, lease, pause, last, text)
      redis.call('SET', lock, record, 'PX', lease + 60000)
      alive = token == owner
        or notify(channel, 'g ' .. token .. ' ' .. fence .. ' ' .. now_us .. ' ' .. lease)
    end
    redis.call('ZREM', queue, heads[1])
    if alive then
      if heads[2] then
        local second, _, _, other = entry_parts(heads[2])
        if other ~= channel then
          notify(other, 'n ' .. second .. ' ' .. lease)
        end
      end
      return token, tonumber(lease), text
    end
    if not unreachable[channel] then
      unreachable[channel], dead = true, dead + 1
      if dead == 1000 then -- the next call continues
        return
      end
    end
  end
end
