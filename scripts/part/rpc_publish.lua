-- In a cluster, channels are of a slot.
if shard == '1' then
  redis.call('SPUBLISH', channel, message)
else
  redis.call('PUBLISH', channel, message)
end
