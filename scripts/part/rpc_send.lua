-- The load of the node counts the request before it is published. A request that cannot
-- be published leaves no record.
local added = redis.pcall('ZINCRBY', method, 1, node)
local sent = added
if type(added) ~= 'table' then
  local message = notice == '' and '1 ' .. timeout .. '\n' .. frame or notice
  if shard == '1' then
    sent = redis.pcall('SPUBLISH', outbox .. node, message)
  else
    sent = redis.pcall('PUBLISH', outbox .. node, message)
  end
end
if type(sent) == 'table' then
  redis.call('DEL', record)
  if type(added) ~= 'table' then
    redis.call('ZINCRBY', method, -1, node)
  end
  error(sent)
end
