local lease = table.remove(KEYS)
local function held() return 1 end
token = table.remove(ARGV)
return redis.call('GET', lease) == held()