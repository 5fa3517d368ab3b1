-- Seconds as Ruby prints them: the shortest text, with a decimal point always.
local time = redis.call('TIME')
local micros = string.format('%06d', time[2])
local fraction = string.gsub(micros, '0+$', '')
if fraction == '' then
  fraction = '0'
end
