if redis.call('HGET', lock, 'o') == id then
  --< part/drop.lua
end
