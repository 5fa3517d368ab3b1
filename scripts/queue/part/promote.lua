-- What is due goes to the end of ready, earliest first.
local entries, stamp = {}, now_ms .. ':'
for i, id in ipairs(due) do
  entries[i] = stamp .. id
end
redis.call('RPUSH', ready, unpack(entries, 1, #entries))
redis.call('ZREMRANGEBYRANK', scheduled, 0, #due - 1)
