-- stay keeps the permits a minute longer than a lease, and never shortens their time to live.
local function stay(lease)
  if redis.call('PEXPIRE', permits, lease + 60000, 'GT') == 0 then
    redis.call('PEXPIRE', permits, lease + 60000, 'NX')
  end
end
