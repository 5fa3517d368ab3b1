-- The places of each queue's jobs. A queue that is not among the keys stops the script.
local jobs = {}
for i = 2, #KEYS, 11 do
  jobs[tostring((i - 2) / 11)] = {}
end
for i = 4, #ARGV, 5 do
  local queue = ARGV[i]
  local places = jobs[queue]
  places[#places + 1] = i
end
