-- reachable reports whether a node can be sent a request; see rpc_call.lua. While the
-- slot moves the caller has no subscription there either, and the node's lease suffices.
local function reachable(node)
  if trust == '1' then
    return true
  elseif shard == '0' then
    return redis.call('PUBSUB', 'NUMSUB', outbox .. node)[2] > 0
  end
  return redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. node)[2] > 0
    or redis.call('PUBSUB', 'SHARDNUMSUB', outbox .. caller)[2] == 0
end
