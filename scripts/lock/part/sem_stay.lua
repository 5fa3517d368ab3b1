-- stay keeps the permits for a time at least: a lease and a minute, or what is released for its 10 s.
local function stay(ms)
  ms = string.format('%.0f', ms)
  if redis.call('PEXPIRE', permits, ms, 'GT') == 0 then
    redis.call('PEXPIRE', permits, ms, 'NX')
  end
end
