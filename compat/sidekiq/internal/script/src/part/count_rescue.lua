if full then
  redis.pcall('UNLINK', rescued)
end
for _, id in ipairs(jids) do
  redis.pcall('HINCRBY', rescued, id, 1)
end
redis.pcall('EXPIRE', rescued, 259200) -- three days
