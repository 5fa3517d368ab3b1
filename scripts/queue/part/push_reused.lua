-- The jobs of the first call were other ones: its answer would say that these are in.
if was ~= digest then
  return redis.error_reply('REUSED the receipt belongs to other jobs')
end
