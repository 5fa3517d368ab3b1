-- The job is due after the delay, or when it expires, if that is earlier. No worker gets it then, but the take
-- that deletes it frees its unique name and its place below the limit, and no drain waits for it.
local expires = tonumber(string.match(text, '^%d+') or '0')
local due = now_ms + 1 + delay -- now_ms is rounded down
due = string.format('%.0f', expires > 0 and math.min(expires, due) or due)
