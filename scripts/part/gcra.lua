-- GCRA: one time for each limit, at which all of it has flowed back. What has not flowed back is the debt. It is
-- counted in parts, of which the rate flows back each us, so that each token is a whole number of parts.
--
-- A record is the time in us; the parts of a us behind it; the rate that these parts are of; when the record began, in
-- us; until when the last reservation waits, in us; how many us were given back. Of a record that is further ahead than
-- most, as after a clock that was set back, most is believed.
local function gcra_debt(record, rate, most)
  if not record then
    return 0, now_us .. ' 0 0'
  end
  local whole, parts, of, tail = string.match(#record <= 120 and record or '', '^(%d+) (%d+) (%d+) (%d+ %d+ %d+)$')
  if not whole then
    return nil
  end
  parts = of + 0 == rate and parts + 0 or parts == '0' and 0 or rate
  return math.min(math.max((whole - now_us) * rate + parts, 0), most), tail
end
