if not (rate and rate >= 1 and rate <= 2 ^ 52 and cost and cost >= 0 and room and cost <= room and room >= 1
  and most and room <= most and most <= 2 ^ 52) then
  error('rate must be 1 to 2^52, cost must be 0 to room, room must be 1 to most, most must be 1 to 2^52')
end
