if entry then
  --< part/tombstone.lua
else
  redis.call('HDEL', failures, id)
  redis.call('HDEL', bodies, id)
end
