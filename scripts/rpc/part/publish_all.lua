-- Publishes the messages of one channel together.
local verb, message = sharded[channel] == '1' and 'SPUBLISH' or 'PUBLISH', table.concat(messages[channel])
local sent = redis.pcall(verb, channel, message)
