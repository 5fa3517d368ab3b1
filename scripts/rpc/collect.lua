--- Collect reads records, for callers that wait for replies and nodes that missed requests.
---
--- Callers and nodes run it after each confirmed subscription: what was published without a
--- subscriber is in the records. A caller gets replies. A node gets the requests that wait for it.
---
---@readonly
---@retry  safe  it only reads
---@keys   records  string  max=500  see call.lua
---@arg    node     string?  the node that reads; none for a caller
---@reply  (state enum(missing=0, pending=1, done=2, lost=3, later=4, refused=5), attempt int, left ms,
---        node string, frame bytes)[]  one row for each record, in order; missing: no record, or cancelled; left:
---        until the record expires; node: the last one that had it; frame: of a lost one its end, if its node has
---        sent it; later: left out, as the rows hold 1 MB already
---@error  LAYOUT  a key holds no call of this version
---@cost   O(1) for each record

local node = ARGV[1]
if #KEYS > 500 then
  error('records: at most 500')
end

local states = {p = 1, d = 2, l = 3, r = 5}
local rows, n, size = {}, 0, 0
for i = 1, #KEYS do
  local record = KEYS[i]
  local head = redis.call('GETRANGE', record, 0, 255)
  local kind = string.sub(head, 1, 1)
  local state, number, left, name, frame = states[kind] or 0, 0, 0, '', ''
  if state > 0 then
    number, name = string.match(head, '^.(%d+) ([^\n]*)\n')
    if not number then
      return redis.error_reply('LAYOUT the key holds no call of this version')
    end
    number = tonumber(number)
  end
  if state == 1 and node ~= '' and node ~= name then
    state = 0
  end
  if node == '' and state > 1 or state == 1 and node ~= '' then
    if size > 1000000 then
      state = 4
    else
      local value = redis.call('GET', record)
      --< part/record.lua
      left, frame = redis.call('PTTL', record), string.sub(value, last + 1)
    end
  end
  size = size + #frame
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4], rows[n + 5] = state, number, left, name, frame
  n = n + 5
end
return rows
