-- A job that moved to ready behind the audit's back stands near an end.
local seen
local function near(id)
  if not seen then
    seen = {}
    for _, entries in ipairs({redis.call('LRANGE', ready, 0, 499), redis.call('LRANGE', ready, -500, -1)}) do
      for _, entry in ipairs(entries) do
        seen[string.match(entry, '^%d+:(.*)$') or ''] = true -- a take drops an entry without a stamp
      end
    end
  end
  return seen[id]
end

local function placed(id)
  return redis.call('ZSCORE', scheduled, id) or redis.call('ZSCORE', leases, id) or redis.call('ZSCORE', dead, id)
end
