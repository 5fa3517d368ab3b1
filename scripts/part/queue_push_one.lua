-- The receipt, which is read and written in one command, comes first. Where there is one,
-- or the id is known, the long way has the answer. See queue_push_sort.lua for the mark x.
local known = fresh ~= '1' and (redis.call('HEXISTS', bodies, id) == 1 or redis.call('HGET', failures, id) == 'x')
local kept = not known and redis.pcall('SET', receipt, '1 0 ' .. now_ms .. ' ', 'NX', 'PX', keep)
if kept then
  local failure = kept.err
  if not failure then
    local added = redis.pcall('HSET', bodies, id, body)
    local queued = type(added) == 'number' and redis.pcall('RPUSH', ready, now_ms .. ':' .. id)
    if type(queued) == 'table' then
      redis.pcall('HDEL', bodies, id)
    end
    if type(queued) ~= 'number' then
      failure = (queued or added).err
      -- A receipt that stays would answer a repeat that the job is in. A user that may
      -- not delete it may write it: an empty one is none.
      local deleted = redis.pcall('DEL', receipt)
      if type(deleted) == 'table' then
        redis.pcall('SET', receipt, '', 'PX', 1)
      end
    end
  end
  if failure then
    error({err = failure})
  end
  pushed = true
end
