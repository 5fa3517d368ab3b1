-- An id that a call made begins with a colon and is known for a minute. One of the caller is known for known ms.
local at = now_ms
if string.byte(id) ~= 58 then
  kept_at = kept_at or string.format('%.0f', now_ms + known - 60000)
  at = kept_at
end
