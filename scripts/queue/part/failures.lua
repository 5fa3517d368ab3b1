-- The failures of a job are the last digits of its count, nine at most: a foreign text must stop no other job.
local failed = tonumber(string.match(string.sub(count or '', -9), '%d*$')) or 0
