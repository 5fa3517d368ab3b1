-- The server's clock, as a number and as the version writes it into enqueued_at.
local time = redis.call('TIME')
local micros = string.format('%06d', time[2])
local now = time[1] + time[2] / 1000000
local stamp = time[1] .. string.sub(micros, 1, 3)
if clock == '0' then
  -- As Ruby writes a float: no zeros at the end, but one digit after the point.
  stamp = time[1] .. '.' .. string.gsub(string.gsub(micros, '0+$', ''), '^$', '0')
end
