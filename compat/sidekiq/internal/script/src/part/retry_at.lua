local stamp = millis == '1' and time[1] .. string.sub(micros, 1, 3) or time[1] .. '.' .. fraction
local at = string.format('%.0f', time[1] + delay) .. '.' .. fraction
