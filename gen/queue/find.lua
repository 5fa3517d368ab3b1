--- Find reads jobs by their ids, in any state.
---
--- It returns one row for each id, in order, up to the first job whose body would be too much. The
--- caller asks again for that job and those after it. A ready job has no time here, because its
--- entry is somewhere in the list, which the script does not search.
---
---@readonly
---@retry  safe  it only reads
---@key    scheduled  zset  id, scored by due time in ms
---@key    leases     zset  id, scored by the end of its lease in us
---@key    dead       zset  id, scored by the time of its death in ms
---@key    bodies     hash  id to body
---@key    failures   hash  id to the number of its failed deliveries, id and a line feed to the last reason
---@key    options    hash  id to the options of a job, which push.lua wrote
---@arg    bytes  int  min=1  stop before the bodies exceed this; one job is always read
---@args   id  string  max=200
---@reply  (state int, at int, body bytes, failures int, reason string, options string)[]  state: 0 ready,
---        1 scheduled, 2 leased, 3 dead, 4 absent; at: as peek.lua has it, 0 for none
---@cost   O(1) for each id, and its body

local scheduled, leases, dead, bodies, failures, options = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local bytes = tonumber(ARGV[1])
if #ARGV > 201 then
  error('id: at most 200')
end

local rows, n, size = {}, 0, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local body = redis.call('HGET', bodies, id)
  size = size + #(body or '')
  if n > 0 and size > bytes then
    break
  end
  local count = redis.call('HMGET', failures, id, id .. '\n')
  local state, at = 0, false
  local failed = string.match(count[1] or '', '^b?(%d+)$')
  for k, key in ipairs({scheduled, leases, dead}) do
    local score = redis.call('ZSCORE', key, id)
    if score then
      state, at = k, tonumber(score)
    end
  end
  at = at and math.min(at, 2 ^ 53) -- a reply has no greater numbers
  if not body or count[1] == 'x' and state ~= 2 then
    state, at, body, count, failed = 4, false, '', {}, nil
  end
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = state, at or 0, body, tonumber(failed) or 0
  rows[n + 5], rows[n + 6] = count[2] or '', state < 4 and redis.call('HGET', options, id) or ''
  n = n + 6
end
return rows
