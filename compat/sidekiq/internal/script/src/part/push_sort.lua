-- The jobs of each queue: a list of them, or, for those of one run that nothing is to be
-- written into, the first and the last in the arguments, where they are pushed from.
local lists, firsts, lasts, later, l = {}, {}, {}, {}, 0
local last, at = 4, 1
while at <= #plan do
  local _, stop, place, count, kind = string.find(plan, '^(%d+):(%d+):([^;]*);', at)
  local first = last + 1
  last = stop and last + tonumber(count) or #ARGV + 1
  if last > #ARGV then
    error('plan is not place:count:kind; for the jobs that there are')
  end
  at = stop + 1
  local tail, due, cut = stamped, nil, nil
  local size, guess = string.match(kind, '^~(%d+),(%d+)$')
  if size and math.abs(guess - time[1] * 1000000 - time[2]) > slack then
    cut = -size - 1
  elseif size or kind == '=' then
    tail = nil
  elseif kind ~= '' then
    due = tonumber(kind)
    if string.sub(kind, 1, 1) == '+' then
      due = now + due
    end
  end
  local list = lists[place]
  if not tail and not list then
    lists[place], firsts[place], lasts[place] = {}, first, last
  else
    if not list then
      list = {}
    elseif firsts[place] then
      list = {unpack(ARGV, firsts[place], lasts[place])}
    end
    lists[place], firsts[place] = list, nil
    local n = #list
    for i = first, last do
      local job = ARGV[i]
      if due and due > now then
        later[l + 1], later[l + 2] = string.format('%.17g', due), job .. '}'
        l = l + 2
      else
        if cut then
          job = string.sub(job, 1, cut)
        end
        if tail then
          job = job .. tail
        end
        n = n + 1
        list[n] = job
      end
    end
  end
end
