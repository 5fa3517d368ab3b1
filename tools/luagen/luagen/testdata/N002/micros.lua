--- Micros prints the time.
---@contract all-or-nothing
---@key a string
---@arg at time.s

local a = KEYS[1]
local at = tonumber(ARGV[1])
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = time[1] * 1000
redis.call('SET', a, 'at:' .. now_us)
redis.call('SET', a, tostring(time[1] * 1e6 + time[2]))
redis.call('SET', a, 'at:' .. now_ms)
redis.call('SET', a, now_us)
redis.call('SET', a, string.format('%.0f', now_us))
local since = now_us - (time[1] * 1000000 + 5)
redis.call('SET', a, 'took:' .. since)
redis.call('SET', a, table.concat({'at', now_us}, ':'))
redis.call('SET', a, string.format('%s at %d', now_us, now_us))
redis.call('SET', a, 'x' .. 123456789012345678)
redis.call('SET', a, 'then:' .. math.floor(at * 1000000))
