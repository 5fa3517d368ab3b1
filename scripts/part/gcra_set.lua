-- Stores the debt of a limit, see gcra.lua, for as long as it says more than no record. One of which something was
-- given back stays for as long as a reservation can be given back.
local parts = debt % rate
local record = string.format('%.0f %.0f %.0f %s', now_us + (debt - parts) / rate, parts, rate, tail)
local stays = string.sub(tail, -2) == ' 0' and debt or most
redis.call('SET', limit, record, 'PX', string.format('%.0f', math.floor(stays / rate / 1000) + 1))
