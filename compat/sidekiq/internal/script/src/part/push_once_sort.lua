local runs, r, at = {}, 0, 1
while at <= #plan do
  local _, stop, place, count, kind = string.find(plan, '^(%d+):(%d+):([^;]*);', at)
  if not stop then
    error('plan is not place:count:kind; for each run of jobs')
  end
  runs[r + 1], runs[r + 2], runs[r + 3] = tonumber(place), tonumber(count), kind
  r, at = r + 3, stop + 1
end
local lists, later, l = {}, {}, 0
local left, list, n, tail, due = 0, nil, 0, nil, nil
r = 0
for i = 6, #ARGV do
  local job = ARGV[i]
  if left == 0 then
    local place, kind = runs[r + 1], runs[r + 3]
    left, tail, due = runs[r + 2], stamped, nil
    r = r + 3
    list = lists[place] or {}
    lists[place] = list
    n = #list
    if kind == '=' then
      tail = nil
    elseif kind ~= '' then
      due = tonumber(kind)
      if string.sub(kind, 1, 1) == '+' then
        due = now + due
      end
    end
  end
  left = left - 1
  if due and due > now then
    later[l + 1], later[l + 2] = string.format('%.17g', due), job .. '}'
    l = l + 2
  else
    if tail then
      job = job .. tail
    end
    n = n + 1
    list[n] = job
  end
end
