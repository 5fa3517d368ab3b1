-- reachable reports whether a node receives a request; see rpc_call.lua. While the slot
-- moves the caller has no subscription here either, and the lease of the node is enough.
local function reachable(node)
  if trust == '1' then
    return true
  elseif shard == '0' then
    return redis.call('PUBSUB', 'NUMSUB', outbox .. node)[2] > 0
  end
  return redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. node)[2] > 0
    or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] == 0
end
